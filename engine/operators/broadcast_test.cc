#include "operators/broadcast.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

// The offsets that a walk visits, by element of the result; compared with the definition of broadcasting.
void expect_walk(const Dims& result, const Dims& operand) {
  std::vector<std::int64_t> seen(static_cast<std::size_t>(element_count(result)), -1);
  BroadcastWalk<1>(result, {operand})
      .for_each_row([&](std::int64_t out, const auto& offsets, std::int64_t length, const auto& steps) {
        for (std::int64_t i = 0; i < length; ++i) {
          seen.at(static_cast<std::size_t>(out + i)) = offsets[0] + i * steps[0];
        }
      });
  const Dims result_strides = strides_of(result), strides = strides_of(operand);
  const std::size_t lead = result.size() - operand.size();
  for (std::int64_t at = 0; at < element_count(result); ++at) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < operand.size(); ++d) {
      const std::int64_t index = at / result_strides[lead + d] % result[lead + d];
      offset += operand[d] == 1 ? 0 : index * strides[d];
    }
    ASSERT_EQ(seen[static_cast<std::size_t>(at)], offset) << to_string(result) << " from " << to_string(operand);
  }
}

TEST(BroadcastWalkTest, VisitsWhatBroadcastingDefines) {
  expect_walk({2, 3, 4}, {2, 3, 4});
  expect_walk({2, 3, 4}, {4});
  expect_walk({2, 3, 4}, {3, 1});
  expect_walk({2, 3, 4}, {2, 1, 4});
  expect_walk({2, 3, 4}, {1, 3, 1});
  expect_walk({2, 3, 4}, {});
  expect_walk({}, {});
  expect_walk({1, 1}, {1});
  expect_walk({5}, {1});
  expect_walk({2, 1, 3, 1, 4}, {1, 3, 1, 4});
  expect_walk({2, 3, 2, 3}, {3, 1, 3});
}

TEST(BroadcastWalkTest, AnEmptyResultHasNoRows) {
  int rows = 0;
  BroadcastWalk<1>({2, 0, 3}, {Dims{3}}).for_each_row([&](auto...) { ++rows; });
  EXPECT_EQ(rows, 0);
}

}  // namespace
}  // namespace sluice::engine
