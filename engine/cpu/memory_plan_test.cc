#include "cpu/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::engine::cpu {
namespace {

// Two that live at the same time must not share a byte.
void expect_sound(const std::vector<Lifetime>& lifetimes, const MemoryPlan& plan) {
  for (std::size_t a = 0; a < lifetimes.size(); ++a) {
    EXPECT_EQ(plan.offsets[a] % kArenaAlignment, 0u);
    EXPECT_LE(plan.offsets[a] + lifetimes[a].bytes, plan.arena_bytes);
    for (std::size_t b = a + 1; b < lifetimes.size(); ++b) {
      const bool together = lifetimes[a].first <= lifetimes[b].last && lifetimes[b].first <= lifetimes[a].last;
      const bool overlap = plan.offsets[a] < plan.offsets[b] + lifetimes[b].bytes &&
                           plan.offsets[b] < plan.offsets[a] + lifetimes[a].bytes;
      EXPECT_FALSE(together && overlap) << a << " and " << b;
    }
  }
}

TEST(MemoryPlanTest, AChainNeedsTwoBuffers) {
  std::vector<Lifetime> chain;
  for (std::size_t i = 0; i < 10; ++i) {
    chain.push_back({1024, i, i + 1});
  }
  const MemoryPlan plan = plan_memory(chain);
  expect_sound(chain, plan);
  EXPECT_EQ(plan.arena_bytes, 2048u);
}

TEST(MemoryPlanTest, AValueThatLivesLongKeepsItsPlace) {
  const std::vector<Lifetime> lifetimes = {{512, 0, 9}, {1024, 1, 2}, {1024, 3, 4}, {64, 2, 3}};
  const MemoryPlan plan = plan_memory(lifetimes);
  expect_sound(lifetimes, plan);
  EXPECT_EQ(plan.arena_bytes, 1024u + 512u + 64u);
}

TEST(MemoryPlanTest, NothingNeedsNothing) { EXPECT_EQ(plan_memory({}).arena_bytes, 0u); }

TEST(MemoryPlanTest, IsSoundForRandomLives) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lifetimes;
    std::size_t sum = 0;
    for (int i = 0; i < 40; ++i) {
      const std::size_t first = random() % 30;
      lifetimes.push_back({random() % 5000, first, first + random() % 6});
      sum += (lifetimes.back().bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    }
    const MemoryPlan plan = plan_memory(lifetimes);
    expect_sound(lifetimes, plan);
    EXPECT_LE(plan.arena_bytes, sum);
  }
}

}  // namespace
}  // namespace sluice::engine::cpu
