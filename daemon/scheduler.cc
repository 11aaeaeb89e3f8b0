#include "scheduler.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "caps.h"
#include "sluice/base/clock.h"
#include "turns.h"

namespace sluice::daemon {
namespace {

constexpr std::uint64_t kScanNs = 100 * kNanosPerMilli;
constexpr std::uint64_t kQuietPollNs = 25 * kNanosPerMilli;  // a policy needs about as long to see a job as heavy
constexpr std::uint64_t kBusyPollNs = 500 * kNanosPerMicro;
constexpr std::uint64_t kShortestPollNs = 50 * kNanosPerMicro;

}  // namespace

Scheduler::Scheduler(const Options& options)
    : options_(options), self_(own_identity()), boards_(options.runtime_dir), last_occupied_ns_(now_ns()) {}

Scheduler::~Scheduler() { stop(); }

void Scheduler::start() { thread_ = std::thread(&Scheduler::loop, this); }

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  const std::lock_guard lock(mutex_);
  for (const auto& board : boards_.all()) {
    apply(board->get(), {}, now_ns());
    std::uint64_t self = self_;
    (*board)->daemon.compare_exchange_strong(self, 0);
  }
}

void Scheduler::rescan() {
  const std::lock_guard lock(mutex_);
  rescan_locked(now_ns(), Reap::kAll);
}

void Scheduler::set_cares(Cares cares) {
  const std::lock_guard lock(mutex_);
  cares_ = std::move(cares);
}

Cares Scheduler::cares() const {
  const std::lock_guard lock(mutex_);
  return cares_;
}

double Scheduler::low_ratio(const board::Board& board) const {
  const auto at = cares_.find(board.device);
  return at == cares_.end() ? 1 : at->second.low_ratio;
}

Boards Scheduler::boards() const {
  const std::lock_guard lock(mutex_);
  return boards_.all();
}

std::uint64_t Scheduler::last_occupied_ns() const {
  const std::lock_guard lock(mutex_);
  return last_occupied_ns_;
}

void Scheduler::remove_unused_boards() {
  const std::lock_guard lock(mutex_);
  boards_.remove_unused();
}

void Scheduler::rescan_locked(std::uint64_t now, Reap reap) {
  boards_.rescan();
  if (reap == Reap::kSome) boards_.reap_some(now);
  for (const auto& board : boards_.all()) {
    if (reap == Reap::kAll) board::reap(board->get(), now);
    if (board->occupied()) last_occupied_ns_ = now;
    note_gpus(*board->get());
    // The daemon lock is ours, so whoever signed here before is gone.
    if (stop_ || (*board)->daemon.load() == self_) continue;
    if (options_.quantum_ns) (*board)->quantum_ns.store(*options_.quantum_ns);
    if (options_.linger_ns) (*board)->linger_ns.store(*options_.linger_ns);
    (*board)->daemon.store(self_);
  }
  next_scan_ns_ = now + kScanNs;
}

// Tells the jobs on several GPUs, and those with a cap, whether they need gates where nobody beside them could hold
// them.
void Scheduler::note_gpus(board::Board& board) {
  const bool capped = low_ratio(board) < 1;
  for (board::Job& job : board.jobs) {
    if (job.live.load() == 0) continue;
    const std::uint32_t linked = links_.gpus_of(job.id.load());
    const std::uint32_t gpus = capped && job.priority.load() < kLowBelow ? std::max(linked, 2u) : linked;
    // A rank that was killed in a hold must not keep the others: not left to the portions in which the rest is reaped.
    if (linked > 1) board::reap_clients(&board, static_cast<int>(&job - board.jobs), now_ns());
    if (job.gpus.exchange(gpus) != gpus) board.epoch.fetch_add(1);
  }
}

// Of a settled board what was seen before, while that holds.
policy::Snapshot Scheduler::look(MappedBoard& board, std::uint64_t now) {
  const std::uint32_t epoch = board->epoch.load();
  board.settled = board.settled && board.epoch == epoch && !any_active(*board.get());
  if (board.settled) {
    board.view.now_ns = now;
  } else {
    board.view = snapshot(*board.get(), now);
    board.epoch = epoch;
  }
  return board.view;
}

std::uint64_t Scheduler::decide_locked(std::uint64_t now) {
  std::uint64_t next = now + kQuietPollNs;
  const Boards boards = boards_.all();
  std::vector<policy::Snapshot> views;
  std::vector<policy::Decision> decisions;
  for (const auto& board : boards) {
    (*board)->daemon_ns.store(now);
    views.push_back(look(*board, now));
  }
  links_.mark(&views);
  for (std::size_t i = 0; i < boards.size(); ++i) {
    decisions.push_back(boards[i]->settled ? policy::Decision() : boards[i]->policy->decide(views[i]));
    if (contended(views[i])) next = std::min({next, now + kBusyPollNs, decisions.back().next_ns});
  }
  next = std::min(next, links_.link(views, &decisions));
  for (std::size_t i = 0; i < boards.size(); ++i)
    next = std::min(next, cap(views[i], low_ratio(*boards[i]->get()), &decisions[i]));
  for (std::size_t i = 0; i < boards.size(); ++i) {
    const bool nothing = decisions[i].closed.empty() && decisions[i].mutes.empty();
    if (boards[i]->settled && nothing) continue;
    apply(boards[i]->get(), decisions[i], now);
    boards[i]->settled = nothing && std::none_of(views[i].jobs.begin(), views[i].jobs.end(),
                                                 [](const policy::JobView& job) { return job.active; });
  }
  return std::max(next, now + kShortestPollNs);
}

void Scheduler::loop() {
  prctl(PR_SET_NAME, "sluiced-policy");
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default of 50 us would make every turn longer
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::uint64_t now = now_ns();
    if (now >= next_scan_ns_) rescan_locked(now, Reap::kSome);
    const std::uint64_t next = std::min(decide_locked(now), next_scan_ns_);
    now = now_ns();
    if (next > now) stopped_.wait_for(lock, std::chrono::nanoseconds(next - now), [&] { return stop_; });
  }
}

}  // namespace sluice::daemon
