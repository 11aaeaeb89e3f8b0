#include "signals.h"

#include <cerrno>

#include "sluice/base/clock.h"

namespace sluice::cli {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP};

}  // namespace

Signals::Signals() {
  sigemptyset(&waited_);
  for (int signal : kForwarded) {
    struct sigaction now;
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&waited_, signal);
  }
  sigaddset(&waited_, SIGCHLD);
  // A caller that ignores SIGCHLD would take the exit codes away from us.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &standard, &chld_before_);
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &pipe_before_);
  sigprocmask(SIG_BLOCK, &waited_, &before_);
}

Signals::~Signals() { restore(); }

void Signals::restore() const {
  sigaction(SIGCHLD, &chld_before_, nullptr);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::next(std::uint64_t timeout_ns, siginfo_t* info) {
  const timespec timeout{static_cast<std::time_t>(timeout_ns / kNanosPerSecond),
                         static_cast<long>(timeout_ns % kNanosPerSecond)};
  const int signal = sigtimedwait(&waited_, info, &timeout);
  return signal > 0 ? signal : 0;
}

bool Signals::must_forward(int signal, const siginfo_t& info) {
  if (signal == SIGCHLD) return false;
  return info.si_code != SI_KERNEL;
}

void Signals::stop_self(int signal) {
  // Not SIGSTOP: the kernel ignores the others for a process group that no shell could continue.
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  raise(signal);
  sigset_t blocked;
  sigprocmask(SIG_UNBLOCK, &only, &blocked);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace sluice::cli
