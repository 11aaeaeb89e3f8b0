#include "offsets.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::graph {
namespace {

using Lists = std::vector<std::vector<std::uint32_t>>;

TEST(Offsets, HeaviestTogetherOfAChainAndOfAFork) {
  EXPECT_EQ(heaviest_together({3, 5, 4}, {{1, 2}, {2}, {}}), 5U);
  EXPECT_EQ(heaviest_together({3, 5, 4}, {{1, 2}, {}, {}}), 9U);
  EXPECT_EQ(heaviest_together({3, 5, 4}, {{}, {}, {}}), 12U);
}

// Temporaries of a random network: each is written by one operation and read by some of the next.
struct Random {
  std::vector<std::uint64_t> sizes;
  Lists before, conflicts;
};
Random random_dag(unsigned seed) {
  std::mt19937 random(seed);
  const std::size_t n = 120;
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n));  // operation i writes temporary i
  Lists readers(n);
  for (std::uint32_t i = 1; i < n; ++i) {
    for (unsigned k = random() % 2 + 1; k > 0; --k) {
      const std::uint32_t from = i - 1 - static_cast<std::uint32_t>(random() % std::min<std::size_t>(i, 6));
      readers[from].push_back(i);
      reach[from][i] = true;
      for (std::size_t a = 0; a < n; ++a) {
        if (reach[a][from]) reach[a][i] = true;
      }
    }
  }
  Random result;
  for (std::size_t i = 0; i < n; ++i) result.sizes.push_back((1 + random() % 64) * 4096);
  result.before.resize(n);
  result.conflicts.resize(n);
  const auto ends_before = [&](std::uint32_t a, std::uint32_t b) {
    if (readers[a].empty()) return reach[a][b] == true;
    for (const std::uint32_t r : readers[a]) {
      if (!reach[r][b]) return false;
    }
    return true;
  };
  for (std::uint32_t a = 0; a < n; ++a) {
    for (std::uint32_t b = 0; b < n; ++b) {
      if (a == b) continue;
      if (ends_before(a, b)) result.before[a].push_back(b);
      if (!ends_before(a, b) && !ends_before(b, a)) result.conflicts[a].push_back(b);
    }
  }
  return result;
}

TEST(Offsets, RandomDagsTakeLittleMoreThanTheLowerBound) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    const Random dag = random_dag(seed);
    const Placement placement = place(dag.sizes, dag.conflicts);
    const std::uint64_t bound = heaviest_together(dag.sizes, dag.before);
    EXPECT_LE(placement.lower_bound, bound);
    EXPECT_GE(placement.peak, bound);
    EXPECT_LE(static_cast<double>(placement.peak), 1.15 * static_cast<double>(bound)) << "seed " << seed;
    for (std::uint32_t a = 0; a < dag.sizes.size(); ++a) {
      EXPECT_LE(placement.offsets[a] + dag.sizes[a], placement.peak);
      for (const std::uint32_t b : dag.conflicts[a]) {
        EXPECT_TRUE(placement.offsets[a] + dag.sizes[a] <= placement.offsets[b] ||
                    placement.offsets[b] + dag.sizes[b] <= placement.offsets[a]);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::graph
