#include "check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sluice::cli {
namespace {

double error(const std::vector<double>& ours, const std::vector<double>& reference) {
  return relative_error(ours, reference);
}

TEST(RelativeError, IsTheNormOfTheDifferenceOverTheReference) {
  EXPECT_DOUBLE_EQ(error({3, 4}, {3, 4}), 0);
  EXPECT_DOUBLE_EQ(error({3, 4.5}, {3, 4}), 0.1);
  EXPECT_EQ(error({}, {}), 0);
  EXPECT_EQ(error({0, 0}, {0, 0}), 0);
}

TEST(RelativeError, IsInfiniteWhereNothingCanBeSaid) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error({1}, {0}), kInfinity);
  EXPECT_EQ(error({1}, {1, 2}), kInfinity);
  EXPECT_EQ(error({kNan, 1}, {1, 1}), kInfinity);
  EXPECT_EQ(error({1, 1}, {kNan, 1}), kInfinity);
  EXPECT_EQ(error({kInfinity}, {-kInfinity}), kInfinity);
  EXPECT_EQ(error({kInfinity, kNan, 1}, {kInfinity, kNan, 1}), 0);
}

}  // namespace
}  // namespace sluice::cli
