#include <gtest/gtest.h>

#include "simulation.h"

namespace sluice::policy {
namespace {

constexpr std::uint64_t kSecond = kNanosPerSecond;

// One busy job above, `below` busy ones of `permille` minimum; the part of the GPU that those below got.
double part_below(std::uint32_t permille, int below) {
  Simulation simulation(make("priority"));
  SimulatedJob& high = simulation.add(1, 100);
  high.view.min_below_permille = permille;
  for (int i = 0; i < below; ++i) simulation.set_active(simulation.add(1, 0), true);
  simulation.set_active(high, true);
  simulation.run(10 * kSecond);
  return 1 - static_cast<double>(high.got_ns) / (10.0 * kSecond);
}

TEST(Minimum, WithoutOneTheJobsBelowGetNothing) { EXPECT_EQ(part_below(0, 3), 0); }

class MinimumOf : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(MinimumOf, IsWhatTheJobsBelowGet) {
  const auto [permille, below] = GetParam();
  const double due = permille / 1000.0;
  const double got = part_below(static_cast<std::uint32_t>(permille), below);
  EXPECT_GE(got, due * 0.9);
  EXPECT_LE(got, due * 1.15 + 0.01);
}
INSTANTIATE_TEST_SUITE_P(Permille, MinimumOf,
                         testing::Combine(testing::Values(10, 50, 100, 200, 400), testing::Values(1, 2, 8)));

TEST(Minimum, AMuteIsShort) {
  Simulation simulation(make("priority"));
  SimulatedJob& high = simulation.add(1, 100);
  high.view.min_below_permille = 100;
  simulation.set_active(simulation.add(1, 0), true);
  simulation.set_active(high, true);
  int mutes = 0;
  simulation.run(2 * kSecond, [&] {
    for (const Decision::Mute& mute : simulation.decision().mutes) {
      ++mutes;
      EXPECT_LE(mute.until_ns, simulation.now() + 4 * kNanosPerMilli);
    }
  });
  EXPECT_GT(mutes, 0);
}

TEST(Minimum, NobodyIsMutedWhileTheOnesBelowGetTheirPartAnyway) {
  Simulation simulation(make("priority"));
  SimulatedJob& high = simulation.add(1, 100);
  high.view.min_below_permille = 300;
  simulation.set_active(simulation.add(1, 0), true);
  simulation.run(5 * kSecond, [&] {
    simulation.set_active(high, simulation.now() / kNanosPerMilli % 10 < 5);
    EXPECT_TRUE(simulation.decision().mutes.empty());
  });
}

TEST(Minimum, NobodyIsMutedForJobsWithoutWorkOrOfEqualPriority) {
  Simulation simulation(make("priority"));
  SimulatedJob& high = simulation.add(1, 100);
  high.view.min_below_permille = 500;
  simulation.set_active(simulation.add(1, 100), true);
  simulation.add(1, 0);
  simulation.set_active(high, true);
  simulation.run(2 * kSecond, [&] { EXPECT_TRUE(simulation.decision().mutes.empty()); });
}

}  // namespace
}  // namespace sluice::policy
