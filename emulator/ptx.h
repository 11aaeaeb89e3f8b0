// As much of PTX as the emulator reads: which kernels a module has and the layout of their parameters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::emulator {

struct PtxParam {
  std::size_t offset = 0, bytes = 0;
};
struct PtxEntry {
  std::string name;
  std::vector<PtxParam> params;
  std::size_t param_bytes = 0;
};

// Whether `image` begins like PTX text: blanks and comments, then `.version`. Reads no further than it has to.
bool looks_like_ptx(const char* image);

// All `.entry` functions of the module. Errors: kInvalidArgument, with the line.
Result<std::vector<PtxEntry>> parse_ptx(std::string_view text);

}  // namespace sluice::emulator
