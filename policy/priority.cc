// The minimum share of the jobs below a job: `sluice run --leave-below`.
//
// A job holds the ones below it all by itself, through its shim. If it has asked to leave them a part of the GPU, this
// policy looks back over kWindowNs: of the time in which jobs below had work, they are due min_below_permille. What
// they lack is given to them by muting the job above: for a while it holds nobody. A mute lasts one piece, so that
// what the job above feels is a few short delays instead of a long one.
#include <algorithm>
#include <deque>
#include <map>

#include "sluice/base/clock.h"
#include "sluice/policy.h"

namespace sluice::policy {
namespace {

constexpr std::uint64_t kWindowNs = 200 * kNanosPerMilli;
constexpr std::uint64_t kBucketNs = 10 * kNanosPerMilli;
constexpr double kSmallestPieceNs = 2e6;  // about a time slice: less would be spent on switching
constexpr double kLongestMuteNs = 4e6;

struct Bucket {
  std::uint64_t begin_ns;
  double wanted_ns;  // jobs below had work
  double got_ns;     // of which the GPU, or their part of it, was theirs
};

struct Above {
  std::deque<Bucket> buckets;
  std::uint64_t muted_until_ns = 0;
  std::uint64_t seen_ns = 0;
  bool was_active = false;
  int were_below = 0;
};

class Minimum : public Policy {
 public:
  Decision decide(const Snapshot& snapshot) override {
    Decision decision;
    for (const JobView& job : snapshot.jobs) {
      if (job.min_below_permille > 0) decide_for(job, snapshot, decision);
    }
    std::erase_if(jobs_, [&](const auto& entry) { return entry.second.seen_ns != snapshot.now_ns; });
    last_ns_ = snapshot.now_ns;
    return decision;
  }

 private:
  void decide_for(const JobView& job, const Snapshot& snapshot, Decision& decision) {
    const std::uint64_t now = snapshot.now_ns;
    const auto [at, is_new] = jobs_.try_emplace(job.id);
    Above& above = at->second;
    if (!is_new) account(above, now);
    above.seen_ns = now;
    above.was_active = job.active;
    above.were_below =
        static_cast<int>(std::count_if(snapshot.jobs.begin(), snapshot.jobs.end(), [&](const JobView& other) {
          return other.active && other.can_be_closed && other.priority < job.priority;
        }));
    if (!job.active || above.were_below == 0) return;

    double wanted = 0, got = 0;
    for (const Bucket& bucket : above.buckets) {
      wanted += bucket.wanted_ns;
      got += bucket.got_ns;
    }
    const double due = std::min<std::uint32_t>(job.min_below_permille, 1000) / 1000.0;
    if (now >= above.muted_until_ns) {
      const double missing = wanted * due - got;
      if (missing >= kSmallestPieceNs) {
        // Muted, they share the GPU with the job above: a piece of their own takes so much longer.
        const double mute = std::min(missing / part(above.were_below), kLongestMuteNs);
        above.muted_until_ns = now + static_cast<std::uint64_t>(mute);
      } else {
        const double until = (kSmallestPieceNs - missing) / due;
        decision.next_ns = std::min(decision.next_ns, now + static_cast<std::uint64_t>(until) + 1);
      }
    }
    if (now < above.muted_until_ns) {
      decision.mutes.push_back({job.id, above.muted_until_ns});
      decision.next_ns = std::min(decision.next_ns, above.muted_until_ns);
    }
  }

  // What `below` busy jobs get together of a GPU that slices time evenly between them and one above.
  static double part(int below) { return below / (below + 1.0); }

  // Books the time since the last decision, in which activity was as seen then.
  void account(Above& above, std::uint64_t now) const {
    while (!above.buckets.empty() && above.buckets.front().begin_ns + kWindowNs < now) above.buckets.pop_front();
    if (above.were_below == 0) return;
    const std::uint64_t mute_end = std::clamp(above.muted_until_ns, last_ns_, now);
    const double elapsed = static_cast<double>(now - last_ns_);
    const double muted = static_cast<double>(mute_end - last_ns_);
    const double got = above.was_active ? muted * part(above.were_below) : elapsed;
    if (above.buckets.empty() || above.buckets.back().begin_ns + kBucketNs <= now) above.buckets.push_back({now, 0, 0});
    above.buckets.back().wanted_ns += elapsed;
    above.buckets.back().got_ns += got;
  }

  std::map<std::uint64_t, Above> jobs_;
  std::uint64_t last_ns_ = 0;
};

const Registration r{"priority", []() -> std::unique_ptr<Policy> { return std::make_unique<Minimum>(); }};

}  // namespace
}  // namespace sluice::policy
