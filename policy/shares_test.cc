#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "simulation.h"

namespace sluice::policy {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint64_t kMilli = kNanosPerMilli;
constexpr std::uint64_t kSecond = kNanosPerSecond;

Simulation busy(const std::vector<std::uint32_t>& shares) {
  Simulation simulation(make("shares"));
  for (std::uint32_t share : shares) simulation.set_active(simulation.add(share), true);
  return simulation;
}

// Every job's progress over its share, relative to the mean of that, must be 1 within `tolerance`.
void expect_progress_by_share(Simulation& simulation, double tolerance) {
  double got = 0, shares = 0;
  for (const auto& job : simulation.jobs()) {
    got += static_cast<double>(job->got_ns);
    shares += job->view.share;
  }
  for (const auto& job : simulation.jobs()) {
    const double relative = static_cast<double>(job->got_ns) / job->view.share / (got / shares);
    EXPECT_NEAR(relative, 1, tolerance) << "job " << job->view.id << " of share " << job->view.share;
  }
}

TEST(Shares, OneJobIsNeverClosed) {
  Simulation simulation = busy({1});
  simulation.run(kSecond, [&] { EXPECT_THAT(simulation.decision().closed, IsEmpty()); });
}

TEST(Shares, ThreeToOne) {
  Simulation simulation = busy({3, 1});
  simulation.run(20 * kSecond);
  expect_progress_by_share(simulation, 0.02);
}

TEST(Shares, TailsAreCharged) {
  Simulation simulation = busy({3, 1});
  simulation.jobs()[1]->view.tail_ns = 5 * kMilli;
  simulation.run(20 * kSecond);
  // While the tail runs the next job has half of the GPU, as the simulation slices time: it was charged for both.
  const double ratio =
      static_cast<double>(simulation.jobs()[0]->got_ns) / static_cast<double>(simulation.jobs()[1]->got_ns);
  EXPECT_NEAR(ratio, 3, 0.06);
}

class ManyShares : public testing::TestWithParam<int> {};

TEST_P(ManyShares, ProgressFollowsSharesWithinTwoPercent) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::uniform_int_distribution<std::uint32_t> share(1, 10);
  std::vector<std::uint32_t> shares(static_cast<std::size_t>(GetParam()));
  for (std::uint32_t& each : shares) each = share(random);
  Simulation simulation = busy(shares);
  // A part of a per cent is a turn, and the cycle of many jobs takes a second.
  simulation.run((shares.size() < 8 ? 20 : 60) * kSecond);
  expect_progress_by_share(simulation, 0.02);
  for (const auto& job : simulation.jobs()) EXPECT_LE(job->longest_wait_ns, 2 * kSecond);
}
INSTANTIATE_TEST_SUITE_P(Jobs, ManyShares, testing::Values(1, 2, 3, 5, 8, 16, 33, 64));

TEST(Shares, ExtremeSharesStarveNobody) {
  Simulation simulation = busy({1, 1000, 1, 1000});
  simulation.run(200 * kSecond);
  expect_progress_by_share(simulation, 0.1);
}

TEST(Shares, ShortRequestsOfEqualsAreNeverClosed) {
  Simulation simulation = busy({1, 1});
  SimulatedJob& light = simulation.add(1);
  simulation.run(10 * kSecond, [&] {
    const std::uint64_t phase = simulation.now() / kMilli % 50;
    simulation.set_active(light, phase < 15);
    EXPECT_THAT(simulation.decision().closed, Not(Contains(light.view.id)));
  });
  EXPECT_EQ(light.longest_wait_ns, 0u);
}

TEST(Shares, TwoShortJobsNeverTakeTurns) {
  Simulation simulation = busy({1, 1});
  simulation.run(10 * kSecond, [&] {
    for (auto& job : simulation.jobs()) {
      simulation.set_active(*job, (simulation.now() / kMilli + 7 * job->view.id) % 30 < 12);
    }
    EXPECT_THAT(simulation.decision().closed, IsEmpty());
  });
}

TEST(Shares, AJobThatGoesIdlePassesItsTurnAtOnce) {
  Simulation simulation = busy({50, 1});
  simulation.run(200 * kMilli);
  SimulatedJob& large = *simulation.jobs()[0];
  SimulatedJob& small = *simulation.jobs()[1];
  while (large.closed) simulation.run(Simulation::kStepNs);
  simulation.set_active(large, false);
  simulation.run(Simulation::kStepNs);
  EXPECT_FALSE(small.closed);
  EXPECT_FALSE(large.closed) << "an idle job is never closed";
}

TEST(Shares, AJobThatComesBackSoonGetsTheRestOfItsPart) {
  // Job 1 computes 6 ms, then thinks 4 ms, so that alone it would use 60 % of the GPU. Its part is half.
  Simulation simulation = busy({1, 1});
  SimulatedJob& eager = *simulation.jobs()[0];
  std::uint64_t idle_until = 0, wanted = 6 * kMilli;
  simulation.run(20 * kSecond, [&] {
    if (eager.view.active && eager.got_ns >= wanted) {
      simulation.set_active(eager, false);
      idle_until = simulation.now() + 4 * kMilli;
    } else if (!eager.view.active && simulation.now() >= idle_until) {
      simulation.set_active(eager, true);
      wanted = eager.got_ns + 6 * kMilli;
    }
  });
  EXPECT_GT(static_cast<double>(eager.got_ns) / (20.0 * kSecond), 0.4);
}

TEST(Shares, AJobWithoutProgressPassesItsTurn) {
  Simulation simulation = busy({100, 1});
  SimulatedJob& stuck = *simulation.jobs()[0];
  SimulatedJob& other = *simulation.jobs()[1];
  stuck.progresses = false;
  simulation.run(20 * kSecond);
  EXPECT_LE(other.longest_wait_ns, 103 * kMilli) << "of a turn of a second";
  EXPECT_GT(other.got_ns, 0u);
  EXPECT_LE(stuck.longest_wait_ns, kSecond) << "it is tried again";
  stuck.progresses = true;
  const std::uint64_t before = stuck.got_ns;
  simulation.run(5 * kSecond);
  EXPECT_GT(stuck.got_ns - before, 3 * kSecond);
}

TEST(Shares, TheClockOfATurnStandsStillWhileItIsHeldFromAbove) {
  Simulation simulation = busy({3, 1});
  SimulatedJob& high = simulation.add(1, 100);
  std::mt19937 random(5);
  simulation.run(60 * kSecond, [&] {
    if (random() % 20 == 0) simulation.set_active(high, !high.view.active);
  });
  const double ratio =
      static_cast<double>(simulation.jobs()[0]->got_ns) / static_cast<double>(simulation.jobs()[1]->got_ns);
  EXPECT_NEAR(ratio, 3, 0.06);
}

TEST(Shares, EveryPriorityHasTurnsOfItsOwn) {
  Simulation simulation(make("shares"));
  for (std::uint32_t share : {1u, 2u}) simulation.set_active(simulation.add(share, 0), true);
  simulation.run(kSecond);
  const std::uint64_t before = simulation.jobs()[0]->got_ns;
  for (std::uint32_t share : {1u, 2u}) simulation.set_active(simulation.add(share, 50), true);
  simulation.run(kSecond);
  simulation.run(2 * kSecond, [&] {
    EXPECT_EQ(simulation.jobs()[0]->closed + simulation.jobs()[1]->closed, 1);
    EXPECT_EQ(simulation.jobs()[2]->closed + simulation.jobs()[3]->closed, 1);
  });
  EXPECT_EQ(simulation.jobs()[0]->got_ns, before) << "strict priority";
  simulation.set_active(*simulation.jobs()[2], false);
  simulation.set_active(*simulation.jobs()[3], false);
  simulation.run(20 * kSecond);
  EXPECT_NEAR(static_cast<double>(simulation.jobs()[1]->got_ns) / static_cast<double>(simulation.jobs()[0]->got_ns), 2,
              0.04);
}

TEST(Shares, AChangedPriorityLeavesTheTurnsOfTheOldLevel) {
  Simulation simulation = busy({1, 1});
  simulation.run(kSecond);
  simulation.jobs()[0]->view.priority = 10;
  simulation.run(Simulation::kStepNs);
  simulation.run(kSecond, [&] { EXPECT_THAT(simulation.decision().closed, IsEmpty()); });
}

TEST(Shares, NobodyWaitsForAJobThatCannotBeClosed) {
  Simulation simulation = busy({1, 1});
  simulation.jobs()[0]->view.can_be_closed = false;
  simulation.run(kSecond, [&] { EXPECT_THAT(simulation.decision().closed, IsEmpty()); });
}

TEST(Shares, AJobThatEndsInItsTurnFreesTheOthers) {
  const auto policy = make("shares");
  Snapshot snapshot{kSecond, {}};
  for (std::uint64_t id : {1, 2}) {
    JobView job;
    job.id = id;
    job.active = true;
    job.active_since_ns = kSecond - 50 * kMilli;
    snapshot.jobs.push_back(job);
  }
  Decision decision = policy->decide(snapshot);
  ASSERT_EQ(decision.closed.size(), 1u);
  const std::uint64_t waiting = decision.closed[0];
  std::erase_if(snapshot.jobs, [&](const JobView& job) { return job.id != waiting; });
  snapshot.now_ns += kMilli;
  EXPECT_THAT(policy->decide(snapshot).closed, IsEmpty());
}

class RandomArrivals : public testing::TestWithParam<int> {};

// Jobs come, go and think at random: the GPU never idles while somebody has work, and whoever nobody above holds gets
// it in bounded time.
TEST_P(RandomArrivals, WorkConservingAndNobodyStarves) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  Simulation simulation(make_all());
  const int jobs = 1 + GetParam() * 7 % 24;
  for (int i = 0; i < jobs; ++i) {
    SimulatedJob& job = simulation.add(1 + random() % 8, 50 * static_cast<std::int32_t>(random() % 2));
    job.view.tail_ns = random() % (3 * kMilli);
    job.view.min_below_permille = job.view.priority > 0 ? 100 : 0;
  }
  simulation.run(60 * kSecond, [&] {
    for (auto& job : simulation.jobs()) {
      if (random() % 500 == 0) simulation.set_active(*job, !job->view.active);
    }
  });
  EXPECT_EQ(simulation.wasted_ns(), 0u);
  std::int32_t top = 0;
  for (const auto& job : simulation.jobs()) top = std::max(top, job->view.priority);
  for (const auto& job : simulation.jobs()) {
    if (job->view.priority != top) continue;
    EXPECT_LE(job->longest_wait_ns, 1500 * kMilli) << "job " << job->view.id;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomArrivals, testing::Range(1, 13));

}  // namespace
}  // namespace sluice::policy
