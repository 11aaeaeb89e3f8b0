// Where the counts of memory errors are kept before they are set back: a line of JSON for each event, never rewritten,
// in ecc-resets.jsonl of the state directory. Not thread safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sluice/base/status.h"

namespace sluice::cli::doctor {

// $SLUICE_STATE_DIR; else /var/lib/sluice for root, and $XDG_STATE_HOME/sluice or ~/.local/state/sluice for others.
// Errors: kFailedPrecondition where none of these is an absolute path.
Result<std::string> state_directory();

class ResetLog {
 public:
  // Makes directory (0700) and file (0600) where they are missing. Errors: kPermissionDenied when either is not the
  // caller's own, can be written by others, or is no directory or file (never through a symbolic link); kInternal.
  static Result<ResetLog> open();
  ResetLog() = default;
  ResetLog(const ResetLog&) = delete;
  ResetLog& operator=(const ResetLog&) = delete;
  ResetLog(ResetLog&& other) noexcept;
  ResetLog& operator=(ResetLog&& other) noexcept;
  ~ResetLog();

  const std::string& path() const { return path_; }
  // Adds "time" (UTC) and "user"; on the disk when it returns ok. Errors: kInternal.
  Status append(nlohmann::json event);

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace sluice::cli::doctor
