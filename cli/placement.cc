#include "placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "sluice/base/units.h"

namespace sluice::cli {
namespace {

// More GPUs than this are first cut down to the best single ones, so that the sets can be enumerated.
constexpr std::size_t kEnumerated = 12;
constexpr int kUtilizationSteps = 10;

constexpr std::size_t kCriteria = 4;
constexpr std::array<const char*, kCriteria + 1> kReasons = {"most free memory", "fewest competing jobs", "fewest jobs",
                                                             "least busy", "closest together"};
using Cost = std::array<double, kCriteria + 1>;  // lower is better, the first that differs decides

std::uint64_t free_bytes(const Candidate& gpu) {
  if (!gpu.memory_total_bytes || !gpu.memory_used_bytes) return 0;
  return *gpu.memory_total_bytes - std::min(*gpu.memory_total_bytes, *gpu.memory_used_bytes);
}

// Tenths of the largest free memory that are missing here: 0 for all that are close to the best.
double memory_cost(const Candidate& gpu, std::uint64_t most) {
  if (most == 0) return 0;
  return std::floor((1.0 - static_cast<double>(free_bytes(gpu)) / static_cast<double>(most)) * 10.0);
}

Cost cost_of(const std::vector<Candidate>& all, const std::vector<std::size_t>& set, std::uint64_t most, int priority,
             const Distance& distance) {
  Cost cost{};
  for (std::size_t at : set) {
    const Candidate& gpu = all[at];
    cost[0] += memory_cost(gpu, most);
    cost[1] += static_cast<double>(std::count_if(gpu.job_priorities.begin(), gpu.job_priorities.end(),
                                                 [&](int other) { return other >= priority; }));
    cost[2] += static_cast<double>(gpu.job_priorities.size());
    cost[3] += std::floor(gpu.utilization_ratio.value_or(0) * kUtilizationSteps);
  }
  for (std::size_t i = 0; i < set.size(); ++i) {
    for (std::size_t j = i + 1; j < set.size(); ++j) cost[4] += distance ? distance(set[i], set[j]) : 0;
  }
  return cost;
}

// The first criterion in which the best set beats the worst of the others at that point.
std::string reason(const std::vector<Candidate>& all, const std::vector<std::size_t>& chosen, const Cost& best,
                   const std::vector<Cost>& others) {
  std::string why = "all equal, lowest index";
  std::size_t decided = kReasons.size();
  for (const Cost& other : others) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (best[i] != other[i]) {
        // What decides against the strongest rival is the last criterion needed.
        if (decided == kReasons.size() || i > decided) decided = i;
        break;
      }
    }
  }
  if (decided < kReasons.size()) why = kReasons[decided];
  std::uint64_t least = ~std::uint64_t{0};
  for (std::size_t at : chosen) least = std::min(least, free_bytes(all[at]));
  return why + " (" + format_bytes(least) + " free)";
}

}  // namespace

Result<Placement> place(const std::vector<Candidate>& candidates, int count, int priority, const Distance& distance) {
  if (count < 1 || candidates.size() < static_cast<std::size_t>(count)) {
    return Status::error(Code::kUnavailable, "the job asks for %d GPUs and there are %zu", count, candidates.size());
  }
  std::uint64_t most = 0;
  for (const Candidate& gpu : candidates) most = std::max(most, free_bytes(gpu));

  std::vector<std::size_t> pool(candidates.size());
  std::iota(pool.begin(), pool.end(), std::size_t{0});
  if (pool.size() > kEnumerated) {
    std::stable_sort(pool.begin(), pool.end(), [&](std::size_t a, std::size_t b) {
      return cost_of(candidates, {a}, most, priority, {}) < cost_of(candidates, {b}, most, priority, {});
    });
    pool.resize(std::max(kEnumerated, static_cast<std::size_t>(count)));
    std::sort(pool.begin(), pool.end());
  }

  // Asked once a pair, since it may be a call to the driver.
  std::vector<std::vector<int>> apart(candidates.size(), std::vector<int>(candidates.size(), 0));
  for (std::size_t a : pool) {
    for (std::size_t b : pool) {
      if (a < b && count > 1 && distance) apart[a][b] = distance(a, b);
    }
  }
  const Distance known = [&](std::size_t a, std::size_t b) { return apart[a][b]; };

  // All sets of `count`, in lexicographic order, so that equal costs go to the lowest indices.
  std::vector<bool> take(pool.size(), false);
  std::fill(take.begin(), take.begin() + count, true);
  std::vector<std::size_t> best_set;
  Cost best{};
  std::vector<Cost> costs;
  do {
    std::vector<std::size_t> set;
    for (std::size_t i = 0; i < pool.size(); ++i) {
      if (take[i]) set.push_back(pool[i]);
    }
    const Cost cost = cost_of(candidates, set, most, priority, known);
    if (best_set.empty() || cost < best) {
      best = cost;
      best_set = set;
    }
    costs.push_back(cost);
  } while (std::prev_permutation(take.begin(), take.end()));

  Placement placement;
  placement.chosen = best_set;
  placement.why = costs.size() == 1 ? "there is no other" : reason(candidates, best_set, best, costs);
  return placement;
}

}  // namespace sluice::cli
