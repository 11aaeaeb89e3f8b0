#include "clock_guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "sluice/base/clock.h"
#include "sluice/health.h"

namespace sluice::daemon {
namespace {

constexpr int kAnswerMs = 10'000;  // NVML's start on a cold driver takes seconds
constexpr int kTriesToUnlock = 50;

struct Request {
  char uuid[96];
  unsigned mhz;  // 0: unlock
};
struct Answer {
  int code;
  char text[Status::kMessageBytes];
};

class Guardian {
 public:
  explicit Guardian(int connection) : connection_(connection) {}

  void serve() {
    Request request;
    while (true) {
      const ssize_t got = recv(connection_, &request, sizeof request, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got != static_cast<ssize_t>(sizeof request)) break;
      request.uuid[sizeof request.uuid - 1] = '\0';
      const Status status = carry_out(request);
      Answer answer = {static_cast<int>(status.code()), ""};
      std::snprintf(answer.text, sizeof answer.text, "%s", status.message());
      if (send(connection_, &answer, sizeof answer, MSG_NOSIGNAL) < 0) break;
    }
    for (int i = 0; i < kTriesToUnlock && !locked_.empty(); ++i) {
      if (i > 0) sleep_ns(100 * kNanosPerMilli);
      std::erase_if(locked_, [&](const std::string& uuid) { return nvml_->unlock_clocks(uuid).ok(); });
    }
  }

 private:
  Status carry_out(const Request& request) {
    if (nvml_ == nullptr) {
      Result<std::shared_ptr<health::Nvml>> opened = health::Nvml::open();
      if (!opened.ok()) return opened.status();
      nvml_ = *opened;
    }
    if (request.mhz != 0) {
      // Before the call: one that is cut short may have locked.
      locked_.insert(request.uuid);
      const Status status = nvml_->lock_clocks(request.uuid, request.mhz);
      if (!status.ok()) locked_.erase(request.uuid);
      return status;
    }
    const Status status = nvml_->unlock_clocks(request.uuid);
    if (status.ok()) locked_.erase(request.uuid);
    return status;
  }

  const int connection_;
  std::shared_ptr<health::Nvml> nvml_;
  std::set<std::string> locked_;
};

[[noreturn]] void guard(int connection) {
  // Out of reach of what is meant for the daemon; it goes when the daemon has gone.
  setsid();
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) signal(number, SIG_IGN);
  prctl(PR_SET_NAME, "sluiced-clocks");
  // The daemon's locks above all, which would outlive it here. Standard error stays.
  constexpr int kKept = 3;
  if (dup2(connection, kKept) < 0) _exit(1);
  if (syscall(SYS_close_range, static_cast<unsigned>(kKept) + 1, ~0u, 0u) != 0) {
    for (int fd = kKept + 1; fd < 4096; ++fd) close(fd);
  }
  Guardian(kKept).serve();
  _exit(0);
}

}  // namespace

ClockGuardian::~ClockGuardian() {
  if (connection_ < 0) return;
  close(connection_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status ClockGuardian::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Status::error(Code::kInternal, "the clocks' guardian: socketpair: %s", std::strerror(errno));
  pid_ = fork();
  if (pid_ == 0) guard(ends[1]);
  const int error = errno;
  close(ends[1]);
  if (pid_ < 0) {
    close(ends[0]);
    return Status::error(Code::kInternal, "the clocks' guardian: fork: %s", std::strerror(error));
  }
  connection_ = ends[0];
  return {};
}

Status ClockGuardian::ask(const std::string& uuid, unsigned mhz) {
  if (connection_ < 0) return Status::error(Code::kUnavailable, "clocks may not be changed: no --allow-clock-control");
  Request request = {};
  std::snprintf(request.uuid, sizeof request.uuid, "%s", uuid.c_str());
  request.mhz = mhz;
  Answer answer = {};
  pollfd ready = {connection_, POLLIN, 0};
  if (send(connection_, &request, sizeof request, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request) ||
      poll(&ready, 1, kAnswerMs) != 1 ||
      recv(connection_, &answer, sizeof answer, 0) != static_cast<ssize_t>(sizeof answer))
    return Status::error(Code::kUnavailable, "the clocks' guardian does not answer");
  answer.text[sizeof answer.text - 1] = '\0';
  return answer.code == 0 ? Status() : Status::error(static_cast<Code>(answer.code), "%s", answer.text);
}

}  // namespace sluice::daemon
