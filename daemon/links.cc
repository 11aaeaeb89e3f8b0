#include "links.h"

#include <algorithm>

#include "sluice/base/clock.h"

namespace sluice::daemon {
namespace {

// How late the other ranks may follow. While no job above has shown up for kCalmNs, the daemon's ordinary pace does.
constexpr std::uint64_t kLookNs = 500 * kNanosPerMicro;
constexpr std::uint64_t kCalmNs = 100 * kNanosPerMilli;
constexpr std::uint64_t kMuteNs = 10 * kNanosPerMilli;

template <class Also>
bool any_above(const policy::Snapshot& view, std::int32_t priority, Also also) {
  return std::any_of(view.jobs.begin(), view.jobs.end(),
                     [&](const policy::JobView& job) { return job.priority > priority && also(job); });
}

}  // namespace

void Links::mark(std::vector<policy::Snapshot>* views) {
  if (views->size() < 2) return jobs_.clear();
  const std::uint64_t now = views->front().now_ns;
  for (auto& [id, job] : jobs_) job.boards = 0;
  for (const policy::Snapshot& view : *views) {
    for (const policy::JobView& job : view.jobs) {
      Job& known = jobs_[job.id];
      if (known.boards++ == 0) known.active = known.held = known.below = false;
      known.active = known.active || job.active;
      known.held = known.held || job.held_from_above;
    }
  }
  std::erase_if(jobs_, [](const auto& entry) { return entry.second.boards < 2; });
  for (policy::Snapshot& view : *views) {
    for (policy::JobView& job : view.jobs) {
      const auto at = jobs_.find(job.id);
      if (at == jobs_.end()) continue;
      job.takes_turns = false;
      if (any_above(view, job.priority, [](const policy::JobView&) { return true; })) at->second.below = true;
      if (any_above(view, job.priority, [](const policy::JobView& above) { return above.active; }))
        at->second.contested_ns = now;
    }
  }
}

std::uint64_t Links::link(const std::vector<policy::Snapshot>& views, std::vector<policy::Decision>* decisions) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  if (jobs_.empty()) return kNever;
  const std::uint64_t now = views.front().now_ns;
  std::uint64_t next = kNever;
  for (auto& [id, job] : jobs_) {
    // Renewed at half of its time, so that the board is not written at every look.
    if (job.held && job.muted_until_ns < now + kMuteNs / 2) job.muted_until_ns = now + kMuteNs;
    const bool contested = job.contested_ns != 0 && now - job.contested_ns < kCalmNs;
    if (job.held || (job.active && contested)) next = now + kLookNs;
  }
  for (std::size_t board = 0; board < views.size(); ++board) {
    for (const policy::JobView& view : views[board].jobs) {
      const auto at = jobs_.find(view.id);
      if (at == jobs_.end() || !at->second.held || view.held_from_above) continue;
      (*decisions)[board].closed.push_back(view.id);
      (*decisions)[board].mutes.push_back({view.id, at->second.muted_until_ns});
    }
  }
  return next;
}

std::uint32_t Links::gpus_of(std::uint64_t id) const {
  const auto at = jobs_.find(id);
  return at != jobs_.end() && at->second.below ? at->second.boards : 1;
}

}  // namespace sluice::daemon
