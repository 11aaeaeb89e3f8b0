#include "job_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "mps.h"
#include "output.h"
#include "processes.h"
#include "spawn.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t kLeftoverPollNs = 20 * kNanosPerMilli;
constexpr int kLooksBeforeNamed = 2;  // a process may be between creating its context and taking its slot

}  // namespace

void JobProcess::begin_wait() {
  waiting_ = true;
  wait_started_ns_ = now_ns();
}

void JobProcess::end_wait() {
  waiting_ = false;
  waited_ns_ = now_ns() - wait_started_ns_;
  slots_.end_wait();
}

void JobProcess::cancel(int signal) {
  end_wait();
  exited_ = true;
  signal_ = signal;
  exit_code_ = 128 + signal;
  slots_ = JobSlots();  // the next one need not wait for this process
}

bool JobProcess::start(Environment environment, const Signals& signals) {
  started_ns_ = ended_ns_ = now_ns();
  const Spawned spawned = spawn(request_.command, std::move(environment), request_.working_directory, &signals);
  if (spawned.pid == 0) {
    say("run: " + spawned.error);
    exit_code_ = spawned.exit_code;
    exited_ = true;
    return false;
  }
  pid_ = spawned.pid;
  slots_.set_child(pid_);
  return true;
}

void JobProcess::on_exit(int wait_status) {
  exited_ = true;
  ended_ns_ = now_ns();
  slots_.end_promise();
  exit_code_ = shell_code(wait_status);
  if (WIFSIGNALED(wait_status)) signal_ = WTERMSIG(wait_status);
  // Ended as asked for in the job file: not a failure.
  if (duration_reached_ && signal_ == SIGTERM) exit_code_ = 0;
}

std::uint64_t JobProcess::tick(std::uint64_t now) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  if (request_.duration_ns == 0 || pid_ <= 0) return kNever;
  if (!duration_reached_) {
    if (exited_) return kNever;
    if (now < started_ns_ + request_.duration_ns) return started_ns_ + request_.duration_ns;
    duration_reached_ = stopping_ = true;
    kill_ns_ = now + kGraceNs;
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // a stopped process would not see it
    return now + kLeftoverPollNs;
  }
  if (!stopping_) return kNever;
  if (now >= kill_ns_) signal_all(SIGKILL);
  if (exited_ && !leftovers()) {
    stopping_ = false;
    return kNever;
  }
  return now + kLeftoverPollNs;
}

void JobProcess::signal_all(int signal) {
  const std::vector<ProcessIdentity> processes = processes_of_job(slots_.id(), exited_ ? 0 : pid_, started_ns_);
  if (request_.mps && signal != SIGCONT && signal != mps_ended_for_) {
    mps_ended_for_ = signal;
    terminate_mps_clients(processes, signal);
  }
  for (ProcessIdentity process : processes) {
    kill(pid_of(process), signal);
  }
}

bool JobProcess::leftovers() const { return !processes_of_job(slots_.id(), 0, started_ns_).empty(); }

bool JobProcess::check_unseen(const Machine& machine, const std::string& shim_dir, bool quiet) {
  if (!running() || slots_.empty()) return false;
  const std::vector<pid_t> tree = process_tree(pid_);
  const std::vector<pid_t> clients = slots_.client_pids();
  bool again = false;
  for (const GpuProcess& process : machine.processes()) {
    if (std::find(tree.begin(), tree.end(), process.pid) == tree.end()) continue;
    int& looks = suspects_[process.pid];
    if (std::find(clients.begin(), clients.end(), process.pid) != clients.end()) {
      looks = 0;
      continue;
    }
    if (looks < 0) continue;
    if (++looks < kLooksBeforeNamed) {
      again = true;
      continue;
    }
    looks = -1;
    unseen_.push_back("process " + std::to_string(process.pid) + " (" + process_name(process.pid) +
                      "): " + why_unseen(process.pid, shim_dir));
    if (!quiet) {
      say("job " + std::to_string(slots_.id()) + " uses a GPU without the shim and cannot be held: " + unseen_.back());
    }
  }
  return again;
}

JobOutcome JobProcess::outcome(bool simulated) const {
  JobOutcome outcome;
  outcome.id = slots_.empty() ? 0 : slots_.id();
  outcome.name = request_.name;
  outcome.priority = request_.priority;
  outcome.share = request_.share;
  outcome.devices = devices_;
  outcome.simulated = simulated;
  outcome.mps = request_.mps;
  outcome.bypass = bypass_;
  outcome.exit_code = exit_code_;
  outcome.signal = signal_;
  outcome.duration_reached = duration_reached_;
  outcome.wall_ns = ended_ns_ - started_ns_;
  outcome.waited_ns = waited_ns_;
  outcome.unseen = unseen_;
  if (!slots_.empty()) {
    outcome.totals = slots_.totals();
    outcome.quantum_ns = slots_.quantum_ns();
  }
  return outcome;
}

}  // namespace sluice::cli
