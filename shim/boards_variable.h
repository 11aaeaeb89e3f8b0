// What `sluice run` tells a job of its places: SLUICE_BOARDS, "UUID=path:job" with commas between.
#pragma once

namespace sluice::shim {

struct Place {
  char uuid[48];
  char path[4096];  // of the board's file
  int job;          // its slot there
};

// Reads the next place at `*text` and moves on; false at the end. One that does not fit that form is passed over.
bool next_place(const char** text, Place* out);

}  // namespace sluice::shim
