// The signals that `sluice run` waits for instead of being interrupted by. One instance a process, from the main
// thread, before any other thread exists.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace sluice::cli {

class Signals {
 public:
  // Blocks the signals it forwards and SIGCHLD. A signal that was ignored (nohup, a background job) stays so. SIGPIPE
  // is ignored: a closed standard error must not change the job's exit code.
  Signals();
  ~Signals();  // as it was before

  // The next signal, or 0 after `timeout_ns`.
  int next(std::uint64_t timeout_ns, siginfo_t* info);

  // Whether a signal that arrived must be passed on. A terminal sends to the whole foreground process group, which
  // the job is in, so what comes from the kernel has reached the job already.
  static bool must_forward(int signal, const siginfo_t& info);

  // Stops this process the way `signal` (SIGTSTP and its kin) would have, had it not been blocked.
  void stop_self(int signal);

  // In a forked child, before exec: the mask and the dispositions the caller of `sluice run` had.
  void restore() const;

 private:
  sigset_t waited_;
  sigset_t before_;
  struct sigaction chld_before_, pipe_before_;
};

}  // namespace sluice::cli
