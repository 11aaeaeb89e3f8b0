#include "sluice/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice {

namespace {

// False when /proc could not be read for a reason that says nothing about the process, such as no free descriptor.
bool read_identity(pid_t pid, ProcessIdentity* identity) {
  *identity = 0;
  if (pid <= 0) return true;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ESRCH;
  char text[1024];
  ssize_t got = read(fd, text, sizeof text - 1);
  const int error = errno;
  close(fd);
  if (got < 0) return error == ESRCH;
  text[got] = '\0';
  // The command name, field 2, may hold spaces and parentheses: fields are counted from its last ')'.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return true;
  at += 2;
  const bool ended = *at == 'Z' || *at == 'X';
  const auto number = [&at] {
    std::uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<unsigned>(*at - '0');
    return value;
  };
  std::uint64_t threads = 0;
  for (int field = 3; field < 22; ++field) {
    if (field == 20) threads = number();
    at = std::strchr(at, ' ');
    if (at == nullptr) return true;
    ++at;
  }
  // A first thread that ended before the others is shown as a zombie too, yet the process lives.
  if (ended && threads <= 1) return true;
  // A start time of 0 (early boot, some sandboxes) still makes a valid identity, because the pid is not 0.
  *identity = number() << kPidBits | static_cast<ProcessIdentity>(pid);
  return true;
}

}  // namespace

ProcessIdentity identity_of(pid_t pid) {
  ProcessIdentity identity = 0;
  return read_identity(pid, &identity) ? identity : 0;
}

ProcessIdentity own_identity() { return identity_of(getpid()); }

bool is_alive(ProcessIdentity identity) {
  if (identity == 0) return false;
  ProcessIdentity found = 0;
  if (read_identity(pid_of(identity), &found)) return found == identity;
  return process_exists(identity);
}

bool process_exists(ProcessIdentity identity) {
  return pid_of(identity) != 0 && (kill(pid_of(identity), 0) == 0 || errno != ESRCH);
}

}  // namespace sluice
