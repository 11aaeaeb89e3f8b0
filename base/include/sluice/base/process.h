// Which process is that, and is it still there? Answers that survive the reuse of a pid.
//
// Uses no C++ runtime library: the shim uses it too. Thread safe.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace sluice {

// A process for all time of one boot, in one word, so that it can be claimed and replaced by one atomic operation:
// the start time in clock ticks since boot (/proc/PID/stat field 22) shifted left by kPidBits, or'ed with the pid.
// 0 is no process. Valid within one pid namespace.
using ProcessIdentity = std::uint64_t;
inline constexpr int kPidBits = 22;  // the kernel's PID_MAX_LIMIT is 2^22

inline pid_t pid_of(ProcessIdentity identity) {
  return static_cast<pid_t>(identity & ((ProcessIdentity{1} << kPidBits) - 1));
}

// The identity of process `pid`, or 0 if there is none or it is a zombie (its address space is gone already).
ProcessIdentity identity_of(pid_t pid);

// The caller's own; read anew at each call, so it is right after fork too.
ProcessIdentity own_identity();

// Whether that very process still runs (stopped counts as running, a zombie does not). False for 0. Where that cannot
// be found out, for want of a file descriptor say, a pid in use counts as running.
bool is_alive(ProcessIdentity identity);

// Whether any process has its pid, a zombie too: a twentieth of the cost of is_alive(), and wrong where the pid was
// given to another since.
bool process_exists(ProcessIdentity identity);

}  // namespace sluice
