#include "measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace sluice::cli {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(100 - i);
  EXPECT_EQ(percentile(values, 50), 50);
  EXPECT_EQ(percentile(values, 99), 99);
  EXPECT_EQ(percentile(values, 100), 100);
  EXPECT_EQ(percentile({7}, 99), 7);
  EXPECT_EQ(percentile({1, 2}, 50), 1);
  EXPECT_EQ(percentile({1, 2}, 51), 2);
}

TEST(MemoryMeter, SeesMemoryThatIsGoneAgain) {
  constexpr std::size_t kBytes = 64u << 20;
  const MemoryMeter meter;
  {
    std::vector<char> memory(kBytes);
    volatile char* const touched = memory.data();
    for (std::size_t i = 0; i < kBytes; i += 4096) touched[i] = 1;
  }
  EXPECT_GE(meter.peak_bytes(), kBytes / 2);
}

}  // namespace
}  // namespace sluice::cli
