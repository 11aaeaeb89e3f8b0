#include "statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace sluice::bench {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Percentile, TakesTheNearestRank) {
  EXPECT_EQ(percentile(one_to(100), 0.5), 50);
  EXPECT_EQ(percentile(one_to(100), 0.99), 99);
  EXPECT_EQ(percentile(one_to(101), 0.99), 100);
  EXPECT_EQ(percentile(one_to(100), 1.0), 100);
  EXPECT_EQ(percentile({7.0}, 0.99), 7);
}

TEST(Bootstrap, IsExactForConstants) {
  Interval interval = bootstrap_ratio({3, 3, 3}, {2, 2}, 0.99);
  EXPECT_EQ(interval.low, 1.5);
  EXPECT_EQ(interval.high, 1.5);
}

TEST(Bootstrap, AgreesWithResamplingDoneTheLongWay) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> latency(0, 0.5);
  std::vector<double> values(500);
  for (double& v : values) v = latency(random);
  std::sort(values.begin(), values.end());
  std::vector<double> resampled(4000);
  std::uniform_int_distribution<std::size_t> pick(0, values.size() - 1);
  for (double& result : resampled) {
    std::vector<double> copy(values.size());
    for (double& v : copy) v = values[pick(random)];
    std::sort(copy.begin(), copy.end());
    result = percentile(copy, 0.9);
  }
  std::sort(resampled.begin(), resampled.end());
  Interval interval = bootstrap_ratio(values, {1.0}, 0.9);
  double width = percentile(resampled, 0.975) - percentile(resampled, 0.025);
  EXPECT_NEAR(interval.low, percentile(resampled, 0.025), 0.15 * width);
  EXPECT_NEAR(interval.high, percentile(resampled, 0.975), 0.15 * width);
}

TEST(Bootstrap, CoversTheTruthAsOftenAsItSays) {
  std::mt19937_64 random(11);
  std::exponential_distribution<double> latency(1);
  int covered = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> a(300), b(300);
    for (double& v : a) v = latency(random);
    for (double& v : b) v = latency(random);
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    Interval interval = bootstrap_ratio(a, b, 0.9, 500, static_cast<std::uint64_t>(trial));
    covered += interval.low <= 1 && 1 <= interval.high;
  }
  EXPECT_GE(covered, kTrials * 90 / 100);
}

TEST(Bootstrap, NarrowsWithMoreSamples) {
  Interval few = bootstrap_ratio(one_to(50), one_to(50), 0.5);
  Interval many = bootstrap_ratio(one_to(5000), one_to(5000), 0.5);
  EXPECT_LT(many.high - many.low, (few.high - few.low) / 5);
}

}  // namespace
}  // namespace sluice::bench
