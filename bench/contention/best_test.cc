#include "best.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

// What one setup measured: the p99 of the high job to alone with its bounds, and what the low job of 1000/s alone made.
struct Measured {
  Setup setup;
  double p99_ratio, bound, low_per_s;
};

Report report_of(const std::vector<Measured>& all) {
  Report report;
  for (const Measured& one : all) {
    SetupResult& setup = report.setups.emplace_back();
    setup.setup = one.setup;
    setup.jobs.resize(2);
    setup.jobs[0].name = "serve";
    setup.jobs[0].throughput_per_s = 100;
    setup.jobs[0].p99_ratio = one.p99_ratio;
    setup.jobs[0].p99_ratio_bounds = Interval{one.p99_ratio, one.bound};
    setup.jobs[1].name = "train";
    setup.jobs[1].throughput_per_s = one.low_per_s;
  }
  return report;
}

constexpr Measured kAlone = {Setup::kAlone, 1, 1, 1000};
constexpr Measured kSliced = {Setup::kTimeSlicing, 3, 3.2, 900};

TEST(Best, TheSmallestP99WhereNoOtherComesNear) {
  const Report report = report_of({kAlone, kSliced, {Setup::kSluice, 1.1, 1.12, 100}});
  const auto best = best_setup(report);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->setup, Setup::kSluice);
  EXPECT_FALSE(best->by_throughput);
  EXPECT_EQ(best->runner_up, Setup::kTimeSlicing);
  EXPECT_EQ(best_sentence(report),
            "Best for this mix: Sluice, by the p99 latency of serve, 1.10 times alone; next time slicing, 3.00 times.");
}

TEST(Best, AmongEqualsWhatTheLowJobGetsDone) {
  const Report report = report_of({kAlone,
                                   kSliced,
                                   {Setup::kMps, 1.9, 2, 990},
                                   {Setup::kSluice, 1.10, 1.11, 800},
                                   {Setup::kSluiceMps, 1.15, 1.2, 950}});
  const auto best = best_setup(report);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->setup, Setup::kSluiceMps) << "within 5 %";
  EXPECT_TRUE(best->by_throughput);
  EXPECT_EQ(best->runner_up, Setup::kSluice);
  EXPECT_DOUBLE_EQ(*best->low_ratio, 0.95);
  EXPECT_THAT(best_sentence(report),
              HasSubstr("Best for this mix: Sluice and MPS, by what the jobs below get done, 95 % "
                        "of alone; next Sluice, 80 %."));
}

TEST(Best, TheBoundIsThatOfTheMeasurementWhereItIsWider) {
  const auto noisy = best_setup(report_of({kAlone, {Setup::kMps, 1.3, 1.4, 990}, {Setup::kSluice, 1.1, 1.35, 800}}));
  EXPECT_EQ(noisy->setup, Setup::kMps);
  const auto sharp = best_setup(report_of({kAlone, {Setup::kMps, 1.3, 1.4, 990}, {Setup::kSluice, 1.1, 1.2, 800}}));
  EXPECT_EQ(sharp->setup, Setup::kSluice);
}

TEST(Best, NothingWithoutLatenciesOrARival) {
  EXPECT_FALSE(best_setup(report_of({kAlone, kSliced})));
  Report without = report_of({kAlone, kSliced, {Setup::kSluice, 1.1, 1.2, 800}});
  for (SetupResult& setup : without.setups) setup.jobs[0].p99_ratio.reset();
  EXPECT_FALSE(best_setup(without));
  EXPECT_EQ(best_sentence(without), "");
}

TEST(Best, TotalIsTheSumOfTheJobsPartsOfAlone) {
  Report report = report_of({kAlone, kSliced});
  EXPECT_DOUBLE_EQ(*total_ratio(report, report.setups[0]), 2);
  EXPECT_DOUBLE_EQ(*total_ratio(report, report.setups[1]), 1.9);
  report.setups[0].jobs[1].throughput_per_s = 0;
  EXPECT_FALSE(total_ratio(report, report.setups[1]));
}

}  // namespace
}  // namespace sluice::bench
