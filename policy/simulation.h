// A GPU and its jobs in simulated time, for the tests of the policies: what is open and of the highest priority shares
// the GPU evenly, a closed job runs on for its tail, held time is kept as a board keeps it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "sluice/base/clock.h"
#include "sluice/policy.h"

namespace sluice::policy {

struct SimulatedJob {
  JobView view;
  bool progresses = true;          // false: keeps work outstanding and gets nothing done
  std::uint64_t got_ns = 0;        // of the GPU
  std::uint64_t closed_at_ns = 0;  // when its gate closed, for the tail
  bool closed = false;
  std::uint64_t muted_until_ns = 0;
  std::uint64_t waiting_since_ns = 0;  // active and closed since then; 0: not
  std::uint64_t longest_wait_ns = 0;
};

class Simulation {
 public:
  explicit Simulation(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}

  SimulatedJob& add(std::uint32_t share, std::int32_t priority = 50) {
    SimulatedJob job;
    job.view.id = jobs_.size() + 1;
    job.view.share = share;
    job.view.priority = priority;
    jobs_.push_back(std::make_unique<SimulatedJob>(job));
    return *jobs_.back();
  }
  void set_active(SimulatedJob& job, bool active) const {
    if (active && !job.view.active) job.view.active_since_ns = now_;
    job.view.active = active;
  }

  std::uint64_t now() const { return now_; }
  std::uint64_t wasted_ns() const { return wasted_ns_; }  // nobody ran although somebody had work
  std::vector<std::unique_ptr<SimulatedJob>>& jobs() { return jobs_; }
  const Decision& decision() const { return decision_; }

  // Runs for `ns` in steps; `each_step` may change what is active.
  void run(
      std::uint64_t ns, const std::function<void()>& each_step = [] {}) {
    for (const std::uint64_t end = now_ + ns; now_ < end;) {
      each_step();
      decide();
      step();
    }
  }

  static constexpr std::uint64_t kStepNs = 500 * kNanosPerMicro;

  bool holds(const SimulatedJob& job) const { return job.view.active && now_ >= job.muted_until_ns; }
  bool held_from_above(const SimulatedJob& job) const {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [&](const auto& other) { return other->view.priority > job.view.priority && holds(*other); });
  }
  bool runs(const SimulatedJob& job) const {
    const bool open = !job.closed || now_ < job.closed_at_ns + job.view.tail_ns;
    return job.view.active && open && !held_from_above(job);
  }

 private:
  void decide() {
    Snapshot snapshot;
    snapshot.now_ns = now_;
    find_top();
    for (auto& job : jobs_) {
      job->view.held_from_above = held_from_above(*job);
      snapshot.jobs.push_back(job->view);
    }
    decision_ = policy_->decide(snapshot);
    std::vector<bool> closed(jobs_.size() + 1);
    for (const std::uint64_t id : decision_.closed) closed.at(id) = true;
    for (auto& job : jobs_) {
      if (closed[job->view.id] && !job->closed) job->closed_at_ns = now_;
      job->closed = closed[job->view.id];
    }
    for (const Decision::Mute& mute : decision_.mutes) jobs_.at(mute.id - 1)->muted_until_ns = mute.until_ns;
    find_top();
  }

  void find_top() {
    top_ = std::numeric_limits<std::int32_t>::min();
    for (const auto& job : jobs_) {
      if (holds(*job)) top_ = std::max(top_, job->view.priority);
    }
  }

  void step() {
    const auto running = static_cast<std::uint64_t>(
        std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return runs(*job); }));
    const bool work = std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->view.active; });
    if (work && running == 0) wasted_ns_ += kStepNs;
    for (auto& job : jobs_) {
      const bool waits = job->view.active && (job->closed || job->view.held_from_above);
      if (waits) job->view.held_ns += kStepNs;
      if (!waits) job->waiting_since_ns = 0;
      if (waits && job->waiting_since_ns == 0) job->waiting_since_ns = now_;
      if (waits) job->longest_wait_ns = std::max(job->longest_wait_ns, now_ + kStepNs - job->waiting_since_ns);
      if (!runs(*job) || !job->progresses) continue;
      job->got_ns += kStepNs / running;
      job->view.progress_ns = now_ + kStepNs;
    }
    now_ += kStepNs;
  }

  std::unique_ptr<Policy> policy_;
  std::vector<std::unique_ptr<SimulatedJob>> jobs_;
  Decision decision_;
  std::int32_t top_ = 0;  // highest priority of a job that holds those below it
  std::uint64_t now_ = kNanosPerSecond;
  std::uint64_t wasted_ns_ = 0;
};

// The policy registered as `name`; null if there is none.
inline std::unique_ptr<Policy> make(std::string_view name) {
  for (const Entry& entry : registered()) {
    if (entry.name == name) return entry.factory();
  }
  return nullptr;
}

}  // namespace sluice::policy
