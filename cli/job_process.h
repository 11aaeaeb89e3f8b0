// One job while it runs: its command, its slots, its deadlines. Driven by the runner's loop; not thread safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "environment.h"
#include "job_request.h"
#include "job_slots.h"
#include "machine.h"
#include "signals.h"
#include "sluice/base/clock.h"
#include "summary.h"

namespace sluice::cli {

class JobProcess {
 public:
  static constexpr std::uint64_t kGraceNs = 5 * kNanosPerSecond;  // between SIGTERM and SIGKILL at the duration's end

  explicit JobProcess(JobRequest request) : request_(std::move(request)) {}

  const JobRequest& request() const { return request_; }
  JobRequest& request() { return request_; }
  const JobSlots& slots() const { return slots_; }
  void set_slots(JobSlots slots) { slots_ = std::move(slots); }
  void set_devices(std::vector<std::string> uuids) { devices_ = std::move(uuids); }
  const std::vector<std::string>& devices() const { return devices_; }  // UUIDs
  void set_bypass(std::string reason) { bypass_ = std::move(reason); }
  const std::string& bypass() const { return bypass_; }

  // It waits for its memory: start() is for later, unless the wait is cancelled by a signal.
  void begin_wait();
  bool waiting() const { return waiting_; }
  void end_wait();
  void cancel(int signal);
  std::uint64_t waited_ns() const { return waited_ns_; }
  bool wait_told() const { return wait_told_; }
  void set_wait_told() { wait_told_ = true; }

  // Starts the command. False, with a line said, when it cannot be started; the exit code tells which way.
  bool start(Environment environment, const Signals& signals);
  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0 && !exited_; }

  // What waitpid said about this job's command.
  void on_exit(int wait_status);
  // Over: the command has ended, and so have the processes it left, where the job was ended by its duration.
  bool finished() const { return exited_ && !stopping_; }

  // Does what is due at `now`; returns when it wants to be called next (ns on the clock of now_ns()).
  std::uint64_t tick(std::uint64_t now);

  // Names processes that hold a context without the shim, each once. Returns whether some need a second look soon.
  bool check_unseen(const Machine& machine, const std::string& shim_dir, bool quiet);

  JobOutcome outcome(bool simulated) const;
  int exit_code() const { return exit_code_; }

 private:
  void signal_all(int signal);
  bool leftovers() const;

  JobRequest request_;
  JobSlots slots_;
  std::vector<std::string> devices_;
  std::string bypass_;
  pid_t pid_ = 0;
  bool waiting_ = false;
  bool wait_told_ = false;
  std::uint64_t wait_started_ns_ = 0;
  std::uint64_t waited_ns_ = 0;
  bool exited_ = false;
  bool stopping_ = false;  // the duration is over and not all processes are gone
  bool duration_reached_ = false;
  int exit_code_ = 0;
  int signal_ = 0;
  std::uint64_t started_ns_ = 0;
  std::uint64_t ended_ns_ = 0;
  std::uint64_t kill_ns_ = 0;
  int mps_ended_for_ = 0;          // the signal before which MPS was asked to end its work
  std::map<pid_t, int> suspects_;  // pid -> looks at which it was without a slot; -1: named
  std::vector<std::string> unseen_;
};

}  // namespace sluice::cli
