// sluiced: runs the policies on the boards of one user or group, answers the command line, cleans up.
//
// It is never on the path of a launch: without it strict priority works on, turns and minimum shares stop. One daemon
// serves a runtime directory; it starts on demand (control's ensure_daemon) and leaves when nobody needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sluice/base/clock.h"
#include "sluice/base/status.h"

namespace sluice::daemon {

struct Options {
  std::string runtime_dir;  // must exist
  // Leave when there has been no job and no request for so long; unset: never.
  std::optional<std::uint64_t> idle_exit_ns = 5 * kNanosPerSecond;
  std::optional<std::uint64_t> quantum_ns;  // for every board, if given
  std::optional<std::uint64_t> linger_ns;   // likewise
  bool allow_clock_control = false;         // the guard may lock the cards' clocks when they are too hot
  std::string metrics;                      // where to serve metrics and page, such as 127.0.0.1:9847; "": nowhere
  bool metrics_allow_remote = false;        // also where others than this machine reach it
  std::string fallback_nvml;                // used when there is no NVML and a board is simulated; may be ""
};

// Whether the options' address is one, and may be listened on. Errors: kInvalidArgument.
Status check_metrics(const Options& options);
inline constexpr char kDefaultMetrics[] = "127.0.0.1:9847";

// Serves until it is idle, told to stop, or gets SIGTERM or SIGINT; then opens every gate it has closed. Returns ok
// at once when another daemon serves the directory, unless metrics are asked for. To be called once, by a program with
// no other thread. Errors: those of control::Server::listen and control::FileLock::acquire; kInvalidArgument for an
// address that is none or not allowed; kAlreadyExists when its port is taken, or when metrics are asked for and another
// daemon serves.
Status run(const Options& options);

// Makes `directory` that of a group: created if missing, its group changed to `group` (a name or a number), mode 2770.
// What is there already must be the caller's own and closed to others. Errors: kInvalidArgument for an unknown group;
// kPermissionDenied, kFailedPrecondition, kInternal.
Status make_group_directory(const std::string& directory, const std::string& group);

}  // namespace sluice::daemon
