#include "ir/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::engine {
namespace {

TEST(HalfTest, EveryHalfSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = half_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      EXPECT_EQ(float_to_half(value), bits);
    }
  }
}

TEST(HalfTest, RoundsToNearestTiesToEven) {
  EXPECT_EQ(half_to_float(float_to_half(1.0f + 0x1p-11f)), 1.0f);                     // a tie, down to even
  EXPECT_EQ(half_to_float(float_to_half(1.0f + 3 * 0x1p-11f)), 1.0f + 2 * 0x1p-10f);  // a tie, up to even
  EXPECT_EQ(half_to_float(float_to_half(1.0f + 0x1.1p-11f)), 1.0f + 0x1p-10f);
  EXPECT_EQ(half_to_float(float_to_half(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(half_to_float(float_to_half(65520.0f))));
  EXPECT_EQ(half_to_float(float_to_half(0x1p-25f)), 0.0f);
  EXPECT_EQ(half_to_float(float_to_half(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
}

TEST(BFloat16Test, RoundsToNearestTiesToEven) {
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(bfloat16_to_float(float_to_bfloat16(1.0f + 3 * 0x1p-8f)), 1.0f + 2 * 0x1p-7f);
  EXPECT_TRUE(std::isinf(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace sluice::engine
