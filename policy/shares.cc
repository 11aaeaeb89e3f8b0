// Weighted turns among jobs of equal priority.
//
// Each priority is a level with turns of its own. A job takes part once it has kept the GPU busy for kHeavyNs more
// than it left it alone, so a short request of an equal never waits for a turn, and leaves again when it has been
// idle as much. Among those that take part and have work, one is in turn and the others are closed.
//
// Fairness is kept by virtual time: the wall time of a job's turns divided by its share, plus half of what it can run
// on after its gate closes, less the time it was held from above. The job with the least goes next, so turns that end
// early, late or twice in a row even out. A job that comes back from idleness keeps a claim of at most one turn.
//
// Per job:   outside --(busy for kHeavyNs)--> waiting --(least virtual time)--> in turn --(turn used up)--> waiting
//            waiting or in turn --(no work)--> idle, never closed --(work)--> waiting
//            in turn --(no progress for kStallNs)--> waiting, with shortest turns until it makes progress
#include <algorithm>
#include <map>

#include "sluice/base/clock.h"
#include "sluice/policy.h"

namespace sluice::policy {
namespace {

constexpr double kBaseTurnNs = 10e6;     // of the smallest share
constexpr double kShortestTurnNs = 2e6;  // one time slice of the GPU: shorter turns would mostly be overrun
constexpr double kLongestCycleNs = 1e9;  // turns shrink so that everybody's comes within about this time
constexpr double kHeavyNs = 20e6;
constexpr double kHeaviestNs = 100e6;  // bound of the account of heaviness: idle for so long is light again
constexpr std::uint64_t kStallNs = 100 * kNanosPerMilli;

struct Member {
  std::int32_t priority = 0;
  bool takes_part = false;
  bool was_active = false;
  bool owed = false;    // lost a turn by idleness: may cut another's short when it comes back
  double heavy_ns = 0;  // busy less idle time
  double virtual_ns = 0;
  std::uint64_t held_ns = 0;  // as last seen
  std::uint64_t progress_ns = 0;
  double stalled_ns = 0;  // of its turns since it last made progress
  std::uint64_t last_turn_ns = 0;
  std::uint64_t seen_ns = 0;
};

struct Level {
  std::uint64_t in_turn = 0;  // a job's id; 0: nobody
  double length_ns = 0;
  double used_ns = 0;
  double free_ns = 0;     // of the turn, still the tail of the job before
  double virtual_ns = 0;  // of the level: least among those with work, never falls
  double claim_ns = 0;    // virtual time of one turn: what who comes back from idleness may be behind
};

// A job of this snapshot with what is remembered of it.
struct Candidate {
  const JobView* view;
  Member* member;
};

double share_of(const JobView& job) { return std::max<std::uint32_t>(job.share, 1); }

class Shares : public Policy {
 public:
  Decision decide(const Snapshot& snapshot) override {
    const std::uint64_t now = snapshot.now_ns;
    Decision decision;
    std::map<std::int32_t, std::vector<Candidate>> candidates;
    for (const JobView& job : snapshot.jobs) {
      Member& member = observe(job, now);
      if (!job.active || !job.can_be_closed || !job.takes_turns) continue;
      if (member.takes_part) {
        candidates[job.priority].push_back({&job, &member});
      } else {
        decision.next_ns = std::min(decision.next_ns, now + static_cast<std::uint64_t>(kHeavyNs - member.heavy_ns) + 1);
      }
    }
    std::erase_if(members_, [&](const auto& entry) { return entry.second.seen_ns != now; });
    std::erase_if(levels_, [&](const auto& entry) { return !candidates.contains(entry.first) && idle(entry.first); });
    last_ns_ = now;
    for (auto& [priority, jobs] : candidates) take_turns(levels_[priority], jobs, now, decision);
    return decision;
  }

 private:
  bool idle(std::int32_t priority) const {
    return std::none_of(members_.begin(), members_.end(), [&](const auto& entry) {
      return entry.second.takes_part && entry.second.priority == priority;
    });
  }

  // Brings what is remembered of a job up to date and charges its turn.
  Member& observe(const JobView& job, std::uint64_t now) {
    const auto [at, is_new] = members_.try_emplace(job.id);
    Member& member = at->second;
    if (is_new || member.priority != job.priority) {
      member = Member{};
      member.priority = job.priority;
      member.held_ns = job.held_ns;
      member.progress_ns = job.progress_ns;
    }
    const double elapsed = is_new ? 0 : static_cast<double>(now - last_ns_);
    const double active = job.active ? static_cast<double>(now - std::min(now, job.active_since_ns)) : 0;
    const double busy = is_new ? active : std::min(active, elapsed);
    // Held time says nothing about how heavy a job is, and costs its turn nothing.
    const double held = job.held_ns > member.held_ns ? static_cast<double>(job.held_ns - member.held_ns) : 0;
    const double ran = std::max(0.0, busy - held);
    const double rested = std::max(0.0, elapsed - busy);
    member.heavy_ns = std::clamp(member.heavy_ns + ran - rested, 0.0, kHeaviestNs);
    if (job.progress_ns != member.progress_ns) member.stalled_ns = 0;
    charge(job, member, job.held_from_above || is_new ? 0 : ran);
    member.held_ns = job.held_ns;
    member.progress_ns = job.progress_ns;
    member.seen_ns = now;
    if (member.heavy_ns <= 0) member.takes_part = false;

    if (!member.takes_part && member.heavy_ns >= kHeavyNs) {
      member.takes_part = true;
      member.virtual_ns = levels_[job.priority].virtual_ns;
    } else if (member.takes_part && job.active && !member.was_active) {
      const Level& level = levels_[job.priority];
      member.virtual_ns = std::max(member.virtual_ns, level.virtual_ns - level.claim_ns);
    }
    member.was_active = job.active;
    return member;
  }

  void charge(const JobView& job, Member& member, double ran) {
    const auto at = levels_.find(job.priority);
    if (at == levels_.end() || at->second.in_turn != job.id) return;
    Level& level = at->second;
    const double free = std::min(level.free_ns, ran);
    level.free_ns -= free;
    level.used_ns += ran - free;
    member.virtual_ns += (ran - free) / share_of(job);
    member.stalled_ns += ran;
  }

  static bool before(const Candidate& left, const Candidate& right) {
    if (left.member->virtual_ns != right.member->virtual_ns) {
      return left.member->virtual_ns < right.member->virtual_ns;
    }
    return left.member->last_turn_ns < right.member->last_turn_ns;
  }

  void take_turns(Level& level, std::vector<Candidate>& jobs, std::uint64_t now, Decision& decision) {
    const auto find = [&](std::uint64_t id) {
      return std::find_if(jobs.begin(), jobs.end(), [&](const Candidate& job) { return job.view->id == id; });
    };
    auto current = find(level.in_turn);
    if (current == jobs.end()) {
      // It went idle, or away, with some of its turn unused.
      if (const auto left = members_.find(level.in_turn); left != members_.end()) {
        left->second.owed = level.used_ns < level.length_ns;
      }
      begin(level, jobs, *std::min_element(jobs.begin(), jobs.end(), before), 0, now);
    } else if (over(level, *current, jobs)) {
      end(level, jobs, *current, now);
    }
    current = find(level.in_turn);

    const auto least = std::min_element(jobs.begin(), jobs.end(), before);
    level.virtual_ns = std::max(level.virtual_ns, least->member->virtual_ns);
    for (const Candidate& job : jobs) {
      if (job.view->id != level.in_turn) decision.closed.push_back(job.view->id);
    }
    if (jobs.size() > 1 && !current->view->held_from_above) {
      const double left = std::max(0.0, level.length_ns - level.used_ns + level.free_ns);
      decision.next_ns = std::min(decision.next_ns, now + static_cast<std::uint64_t>(left) + 1);
    }
  }

  static bool stalled(const Candidate& job) { return job.member->stalled_ns >= static_cast<double>(kStallNs); }

  // Whether the turn of `current` ends now.
  static bool over(const Level& level, const Candidate& current, const std::vector<Candidate>& jobs) {
    if (level.used_ns >= level.length_ns) return true;
    if (level.used_ns < kShortestTurnNs) return false;
    if (stalled(current)) return true;
    return std::any_of(jobs.begin(), jobs.end(), [&](const Candidate& job) {
      const double margin = kShortestTurnNs / share_of(*job.view);
      return job.member->owed && job.view->id != current.view->id &&
             job.member->virtual_ns + margin < current.member->virtual_ns;
    });
  }

  static void end(Level& level, std::vector<Candidate>& jobs, Candidate current, std::uint64_t now) {
    current.member->last_turn_ns = now;
    const bool pass_on = stalled(current) && jobs.size() > 1;
    const auto next = std::min_element(jobs.begin(), jobs.end(), [&](const Candidate& left, const Candidate& right) {
      if (pass_on && (left.view->id == current.view->id) != (right.view->id == current.view->id)) {
        return right.view->id == current.view->id;
      }
      return before(left, right);
    });
    double tail = 0;
    if (next->view->id != current.view->id) {
      // It runs on for up to tail_ns after its gate closes: half of that on average, at the next one's expense.
      tail = static_cast<double>(current.view->tail_ns) / 2;
      current.member->virtual_ns += tail / share_of(*current.view);
    }
    begin(level, jobs, *next, tail, now);
  }

  static void begin(Level& level, const std::vector<Candidate>& jobs, const Candidate& job, double tail_before,
                    std::uint64_t now) {
    double total = 0, smallest = share_of(*job.view);
    for (const Candidate& each : jobs) {
      total += share_of(*each.view);
      smallest = std::min(smallest, share_of(*each.view));
    }
    const double shrink = std::min(1.0, kLongestCycleNs / (kBaseTurnNs * total / smallest));
    level.in_turn = job.view->id;
    level.length_ns = std::max(kShortestTurnNs, kBaseTurnNs * share_of(*job.view) / smallest * shrink);
    level.claim_ns = level.length_ns / share_of(*job.view);
    level.used_ns = 0;
    level.free_ns = tail_before;
    job.member->owed = false;
    job.member->last_turn_ns = now;
  }

  std::map<std::uint64_t, Member> members_;
  std::map<std::int32_t, Level> levels_;
  std::uint64_t last_ns_ = 0;
};

const Registration r{"shares", []() -> std::unique_ptr<Policy> { return std::make_unique<Shares>(); }};

}  // namespace
}  // namespace sluice::policy
