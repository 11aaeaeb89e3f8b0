// Running nvidia-cuda-mps-control. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::mps {

// Environment of everything that belongs to a daemon and not to its clients: it names the pipe directory as they do.
inline constexpr char kNoClientVariable[] = "SLUICE_MPS_CONTROL";

struct Answer {
  int exit_code = 0;   // 128 + N when signal N ended it
  std::string output;  // both streams, at most 64 KiB
};

// Runs it with `options`, its standard input `commands`, in a session of its own, for the daemon of `pipe_directory`.
// Nothing of a job reaches it: not the shim, not the GPUs that the caller may see. What is still running after
// `timeout_ns` is killed. Errors: kUnavailable, kDeadlineExceeded, kInternal.
Result<Answer> run_control(const std::vector<std::string>& options, const std::string& commands,
                           const std::string& pipe_directory, const std::string& log_directory,
                           std::uint64_t timeout_ns);

// Whether any live process of this user, the caller's own aside, names the pipe directory in its environment.
bool named_by_a_process(const std::string& pipe_directory);

}  // namespace sluice::mps
