#include "timeline.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sluice/base/clock.h"
#include "sluice/board.h"

namespace sluice::bench {
namespace {

JobState state_of(const board::Board& board, std::string_view name) {
  JobState state = JobState::kIdle;
  for (const board::Client& client : board.clients) {
    if (client.owner.load(std::memory_order_acquire) == 0 || client.live.load(std::memory_order_acquire) == 0) continue;
    std::uint32_t job = client.job.load(std::memory_order_relaxed);
    if (job >= static_cast<std::uint32_t>(board::kJobs) || name != board.jobs[job].name) continue;
    if (client.active.load(std::memory_order_relaxed) == 0) continue;
    if (client.gate.load(std::memory_order_relaxed) == 0) return JobState::kRunning;
    state = JobState::kHeld;
  }
  return state;
}

}  // namespace

TimelineSampler::TimelineSampler(std::string uuid, std::vector<std::string> names, double real_per_shown,
                                 double period_us)
    : uuid_(std::move(uuid)), names_(std::move(names)), real_per_shown_(real_per_shown), period_us_(period_us) {}

TimelineSampler::~TimelineSampler() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void TimelineSampler::start() {
  timeline_ = {};
  timeline_.jobs.resize(names_.size());
  stop_ = false;
  thread_ = std::thread([this] { run(); });
}

Timeline TimelineSampler::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return std::move(timeline_);
}

void TimelineSampler::run() {
  char path[4096];
  if (!board::board_path(uuid_.c_str(), path, sizeof path).ok()) return;
  auto board = board::map(path);
  if (!board.ok()) return;
  const double real_ns_per_us = 1e3 * real_per_shown_;
  const auto period_ns = static_cast<std::uint64_t>(period_us_ * real_ns_per_us);
  const std::uint64_t begin = now_ns();
  std::vector<JobState> last(names_.size(), JobState::kIdle);
  for (std::uint64_t next = begin + period_ns; !stop_; next += period_ns) {
    double at = static_cast<double>(now_ns() - begin) / real_ns_per_us;
    timeline_.length_us = at;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      std::vector<Span>& spans = timeline_.jobs[i];
      if (last[i] != JobState::kIdle) spans.back().end_us = at;
      JobState state = state_of(**board, names_[i]);
      if (state != JobState::kIdle && state != last[i]) spans.push_back({at, at, state});
      last[i] = state;
    }
    std::uint64_t now = now_ns();
    next = std::max(next, now);  // a late sample is late; no burst follows it
    sleep_ns(next - now);
  }
  board::unmap(*board);
}

}  // namespace sluice::bench
