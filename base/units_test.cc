#include "sluice/base/units.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Units, Durations) {
  EXPECT_EQ(*parse_duration_ns("90"), 90'000'000'000u);
  EXPECT_EQ(*parse_duration_ns("1.5m"), 90'000'000'000u);
  EXPECT_EQ(*parse_duration_ns("250ms"), 250'000'000u);
  EXPECT_EQ(*parse_duration_ns("100us"), 100'000u);
  EXPECT_EQ(*parse_duration_ns("0"), 0u);
}

TEST(Units, NonsenseIsRefusedWithAnExample) {
  for (const char* text : {"", "-1", "abc", "1x", "1 s", "nan", "inf", "1e300", "0x", "s"}) {
    Result<std::uint64_t> got = parse_duration_ns(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.status().code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(got.status().message()).find("250ms"), std::string::npos);
  }
}

TEST(Units, Sizes) {
  EXPECT_EQ(*parse_bytes("8GiB"), std::uint64_t{8} << 30);
  EXPECT_EQ(*parse_bytes("8G"), std::uint64_t{8} << 30);
  EXPECT_EQ(*parse_bytes("8gb"), 8'000'000'000u);
  EXPECT_EQ(*parse_bytes("1.5m"), 1'572'864u);
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
  EXPECT_EQ(*parse_bytes("2TiB"), std::uint64_t{2} << 40);
  for (const char* text : {"", "G", "-1G", "8 G", "8GG", "nan", "1e300", "60%", "8Gi"}) {
    Result<std::uint64_t> got = parse_bytes(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_NE(std::string(got.status().message()).find("8GiB"), std::string::npos);
  }
}

TEST(Units, Print) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1610612736), "1.50 GiB");
  EXPECT_EQ(format_duration_ns(1234567), "1.23 ms");
  EXPECT_EQ(format_duration_ns(90'000'000'000), "90 s");
}

}  // namespace
}  // namespace sluice
