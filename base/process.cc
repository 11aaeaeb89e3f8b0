#include "sluice/base/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice {

ProcessIdentity identity_of(pid_t pid) {
  if (pid <= 0) return 0;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return 0;
  text[got] = '\0';
  // The command name, field 2, may hold spaces and parentheses: fields are counted from its last ')'.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return 0;
  at += 2;
  if (*at == 'Z' || *at == 'X') return 0;
  for (int field = 3; field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (at == nullptr) return 0;
    ++at;
  }
  std::uint64_t start_ticks = 0;
  for (; *at >= '0' && *at <= '9'; ++at) start_ticks = start_ticks * 10 + static_cast<unsigned>(*at - '0');
  // A start time of 0 (early boot, some sandboxes) still makes a valid identity, because the pid is not 0.
  return start_ticks << kPidBits | static_cast<ProcessIdentity>(pid);
}

ProcessIdentity own_identity() { return identity_of(getpid()); }

bool is_alive(ProcessIdentity identity) { return identity != 0 && identity_of(pid_of(identity)) == identity; }

}  // namespace sluice
