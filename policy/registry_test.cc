#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulation.h"

namespace sluice::policy {
namespace {

using testing::ElementsAre;

TEST(Registry, HoldsEveryPolicyInTheOrderOfNames) {
  std::vector<std::string_view> names;
  for (const Entry& entry : registered()) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("priority", "shares"));
}

TEST(Registry, UnitedDecisionsHoldWhatEachPolicyDecided) {
  Simulation simulation(make_all());
  SimulatedJob& high = simulation.add(1, 100);
  high.view.min_below_permille = 100;
  for (int i = 0; i < 2; ++i) simulation.set_active(simulation.add(1, 0), true);
  simulation.set_active(high, true);
  bool closed_one = false, muted = false;
  simulation.run(2 * kNanosPerSecond, [&] {
    closed_one = closed_one || simulation.decision().closed.size() == 1;
    muted = muted || simulation.decision().mutes.size() == 1;
  });
  EXPECT_TRUE(closed_one);
  EXPECT_TRUE(muted);
}

TEST(Registry, NothingToDecideAsksForNoWakeUp) {
  const auto policy = make_all();
  const Decision decision = policy->decide({kNanosPerSecond, {}});
  EXPECT_TRUE(decision.closed.empty());
  EXPECT_TRUE(decision.mutes.empty());
  EXPECT_EQ(decision.next_ns, ~std::uint64_t{0});
}

}  // namespace
}  // namespace sluice::policy
