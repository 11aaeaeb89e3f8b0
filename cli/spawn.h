// Starting a command as a shell would: same process group, session, terminal and standard streams as the caller.
// Not thread safe (forks).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "environment.h"
#include "signals.h"
#include "sluice/base/status.h"

namespace sluice::cli {

inline constexpr int kExitNotExecutable = 126;  // as shells say it
inline constexpr int kExitNotFound = 127;

struct Spawned {
  pid_t pid = 0;      // 0: not started, and then:
  int exit_code = 0;  // kExitNotFound or kExitNotExecutable
  std::string error;  // one line
};

// PATH of `environment` is searched. `folder` "" is the caller's working directory. `signals` may be null.
Spawned spawn(const std::vector<std::string>& command, Environment environment, const std::string& folder,
              const Signals* signals);

// Replaces this process by the command; returns only when that failed.
Spawned replace_self(const std::vector<std::string>& command);

// What waitpid said, as a shell's exit code: the command's own, or 128 + the signal.
int shell_code(int wait_status);

}  // namespace sluice::cli
