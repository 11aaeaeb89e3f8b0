// Processes that use a GPU and are no client of its board: who they are, and why. Reads /proc; thread safe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace sluice::daemon {

struct Stranger {
  std::optional<std::string> name;  // nullopt when the process cannot be seen from here
  std::optional<std::string> user;
  std::string reason;  // one clause, such as "started without sluice"
};

Stranger look_at(pid_t pid);

}  // namespace sluice::daemon
