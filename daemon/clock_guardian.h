// A process that locks the cards' clocks for the daemon and sets them free again when the daemon is gone, however it
// went. Not thread safe.
#pragma once

#include <sys/types.h>

#include <string>

#include "sluice/base/status.h"

namespace sluice::daemon {

class ClockGuardian {
 public:
  ClockGuardian() = default;  // no process: lock() is refused
  // Closes the connection, by which the process knows that its time has come, and waits for it.
  ~ClockGuardian();
  ClockGuardian(const ClockGuardian&) = delete;
  ClockGuardian& operator=(const ClockGuardian&) = delete;

  // Forks it. REQUIRES: this process has no other thread. Errors: kInternal.
  Status start();
  bool started() const { return connection_ >= 0; }

  // `uuid` is NVML's. Errors: those of Nvml::lock_clocks; kUnavailable when the guardian is gone or does not answer.
  Status lock(const std::string& uuid, unsigned mhz) { return ask(uuid, mhz); }
  Status unlock(const std::string& uuid) { return ask(uuid, 0); }

 private:
  Status ask(const std::string& uuid, unsigned mhz);

  int connection_ = -1;
  pid_t pid_ = 0;
};

}  // namespace sluice::daemon
