// What ONNX's conformance data does not show of reductions, activations, ranking, indexing and selection.
#include <cmath>
#include <limits>

#include "testing/run_node.h"

namespace sluice::engine::test {
namespace {

using Values = std::vector<double>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(ReductionTest, AxesAreAttributeOrInput) {
  const Tensor x = floats({2, 2}, {1, 2, 3, 4});
  const auto attribute = run_node("ReduceSum", 11, {x}, {{"axes", std::vector<std::int64_t>{-1}}});
  EXPECT_EQ(attribute.dims(), Dims({2, 1}));
  EXPECT_EQ(attribute.values(), Values({3, 7}));
  EXPECT_EQ(run_node("ReduceSum", 13, {x, ints({-1})}).values(), attribute.values());
  EXPECT_EQ(run_node("ReduceSum", 13, {x}, {{"axes", std::vector<std::int64_t>{1}}}).status.code(),
            Code::kUnimplemented);
  EXPECT_EQ(run_node("ReduceSum", 13, {x}, {{"noop_with_empty_axes", std::int64_t{1}}}).values(), Values({1, 2, 3, 4}));
  EXPECT_EQ(run_node("ReduceMean", 13, {x}, {{"axes", std::vector<std::int64_t>{2}}}).status.code(),
            Code::kInvalidArgument);
}

TEST(ReductionTest, NothingHasASumButNoExtreme) {
  const Tensor x = floats({2, 0}, {});
  const Attribute last{"axes", std::vector<std::int64_t>{1}};
  EXPECT_EQ(run_node("ReduceSum", 11, {x}, {last}).values(), Values({0, 0}));
  EXPECT_EQ(run_node("ReduceProd", 13, {x}, {last}).values(), Values({1, 1}));
  EXPECT_EQ(run_node("ReduceMax", 13, {x}, {last}).status.code(), Code::kInvalidArgument);
}

TEST(ReductionTest, LargeValuesAndNan) {
  const auto log_sum = run_node("ReduceLogSumExp", 13, {floats({2}, {1000, 1000})});
  EXPECT_NEAR(log_sum.values()[0], 1000 + std::log(2.0), 1e-4);
  EXPECT_TRUE(std::isinf(run_node("ReduceLogSumExp", 13, {floats({2}, {-kInfinity, -kInfinity})}).values()[0]));
  EXPECT_TRUE(std::isnan(run_node("ReduceMax", 13, {floats({3}, {1, kNan, 2})}).values()[0]));
  const std::int64_t big = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(run_node("ReduceMax", 13, {ints({big - 1, big})}).outputs[0].as_int(0), big);
  const auto many = run_node("ReduceSum", 11, {floats({1 << 20}, std::vector<float>(1 << 20, 0.1f))});
  EXPECT_NEAR(many.values()[0], 0.1 * (1 << 20), 0.05);  // summed in float it is off by more than 100
}

TEST(ClipTest, BoundsByVersion) {
  const Tensor x = floats({3}, {-5, 0, 5});
  EXPECT_EQ(run_node("Clip", 10, {x}, {{"min", -1.0f}}).values(), Values({-1, 0, 5}));
  EXPECT_EQ(run_node("Clip", 11, {x, {}, floats({}, {1})}).values(), Values({-5, 0, 1}));
  EXPECT_EQ(run_node("Clip", 13, {x, floats({}, {2}), floats({}, {1})}).values(), Values({1, 1, 1}));
  EXPECT_EQ(run_node("Clip", 13, {x}, {{"min", -1.0f}}).status.code(), Code::kUnimplemented);
  EXPECT_EQ(run_node("Clip", 13, {x, floats({2}, {1, 2})}).status.code(), Code::kInvalidArgument);
}

TEST(PReluTest, TheSlopeNeverWidensX) {
  EXPECT_EQ(run_node("PRelu", 9, {floats({2}, {-1, 2}), floats({}, {0.5f})}).values(), Values({-0.5, 2}));
  EXPECT_EQ(run_node("PRelu", 9, {floats({1}, {-1}), floats({2}, {1, 2})}).status.code(), Code::kInvalidArgument);
}

TEST(RankingTest, TiesGoByIndexAndNanIsLargest) {
  const Tensor x = floats({5}, {1, 3, kNan, 3, 2});
  EXPECT_EQ(run_node("ArgMax", 13, {x}).values(), Values({2}));
  const Tensor y = floats({4}, {1, 3, 3, 0});
  EXPECT_EQ(run_node("ArgMax", 13, {y}).values(), Values({1}));
  EXPECT_EQ(run_node("ArgMax", 13, {y}, {{"select_last_index", std::int64_t{1}}}).values(), Values({2}));
  const auto top = run_node("TopK", 11, {x, ints({3})}, {}, 2);
  EXPECT_EQ(top.values(1), Values({2, 1, 3}));
  const auto low = run_node("TopK", 11, {y, ints({2})}, {{"largest", std::int64_t{0}}}, 2);
  EXPECT_EQ(low.values(1), Values({3, 0}));
  EXPECT_EQ(run_node("TopK", 9, {y}, {{"k", std::int64_t{1}}}, 2).values(0), Values({3}));
  EXPECT_EQ(run_node("TopK", 11, {y, ints({5})}, {}, 2).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("ArgMin", 13, {floats({0}, {})}).status.code(), Code::kInvalidArgument);
}

TEST(IndexingTest, IndicesOutsideAreErrors) {
  const Tensor x = floats({3}, {1, 2, 3});
  EXPECT_EQ(run_node("GatherElements", 13, {x, ints({-1, 0})}).values(), Values({3, 1}));
  EXPECT_EQ(run_node("GatherElements", 13, {x, ints({3})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("GatherND", 13, {x, ints({1, 1}, {-4})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("ScatterND", 13, {x, ints({1, 1}, {3}), floats({1}, {9})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("ScatterND", 13, {x, ints({1, 1}, {-1}), floats({1}, {9})}).values(), Values({1, 2, 9}));
  EXPECT_EQ(run_node("ScatterElements", 13, {x, ints({0}), floats({2}, {9, 9})}).status.code(), Code::kInvalidArgument);
}

TEST(IndexingTest, Reductions) {
  const Tensor x = floats({2}, {2, 3});
  const Attribute add{"reduction", std::string("add")};
  EXPECT_EQ(run_node("ScatterElements", 16, {x, ints({0, 0}), floats({2}, {1, 1})}, {add}).values(), Values({4, 3}));
  EXPECT_EQ(run_node("ScatterElements", 15, {x, ints({0}), floats({1}, {1})}, {add}).status.code(),
            Code::kUnimplemented);
  EXPECT_EQ(run_node("ScatterND", 16, {x, ints({1, 1}, {0}), floats({1}, {1})}, {{"reduction", std::string("max")}})
                .status.code(),
            Code::kUnimplemented);
}

TEST(OneHotTest, WhatIsOutsideMarksNothing) {
  const Tensor depth = ints({}, {3}), values = floats({2}, {0, 1});
  EXPECT_EQ(run_node("OneHot", 11, {ints({-1, 3}), depth, values}).values(), Values({0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(run_node("OneHot", 9, {ints({-1}), depth, values}).values(), Values({0, 0, 0}));
  EXPECT_EQ(run_node("OneHot", 11, {ints({0}), ints({}, {0}), values}).status.code(), Code::kInvalidArgument);
}

TEST(SelectionTest, NothingIsFound) {
  EXPECT_EQ(run_node("NonZero", 13, {floats({2, 2}, {0, 0, 0, 0})}).dims(), Dims({2, 0}));
  EXPECT_EQ(run_node("Unique", 11, {floats({0}, {})}, {}, 4).dims(), Dims({0}));
  EXPECT_EQ(
      run_node("Compress", 11, {floats({2}, {1, 2}), tensor<std::uint8_t>(DType::kBool, {3}, {0, 1, 1})}).status.code(),
      Code::kInvalidArgument);
}

TEST(SelectionTest, BoxesWithoutALimitAreNone) {
  const Tensor boxes = floats({1, 1, 4}, {0, 0, 1, 1}), scores = floats({1, 1, 1}, {0.5f});
  EXPECT_EQ(run_node("NonMaxSuppression", 11, {boxes, scores}).dims(), Dims({0, 3}));
  EXPECT_EQ(run_node("NonMaxSuppression", 11, {boxes, scores, ints({1})}).dims(), Dims({1, 3}));
  EXPECT_EQ(run_node("NonMaxSuppression", 11, {boxes, floats({1, 1, 1}, {kNan}), ints({1})}).status.code(),
            Code::kInvalidArgument);
}

TEST(SignalTest, OddLengthsPaddingAndInverse) {
  const Tensor x = floats({1, 3, 1}, {1, 2, 4});
  const auto spectrum = run_node("DFT", 17, {x, ints({}, {5})});
  ASSERT_TRUE(spectrum.status.ok()) << spectrum.status.message();
  EXPECT_EQ(spectrum.dims(), Dims({1, 5, 2}));
  EXPECT_NEAR(spectrum.values()[0], 7, 1e-6);
  const auto back = run_node("DFT", 17, {spectrum.outputs[0]}, {{"inverse", std::int64_t{1}}});
  const Values expected = {1, 0, 2, 0, 4, 0, 0, 0, 0, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(back.values()[i], expected[i], 1e-6) << i;
  }
  EXPECT_EQ(run_node("DFT", 17, {x}, {{"onesided", std::int64_t{1}}}).dims(), Dims({1, 2, 2}));
  EXPECT_EQ(run_node("STFT", 17, {x, ints({}, {1}), {}, ints({}, {4})}).status.code(), Code::kInvalidArgument);
}

TEST(SamplingTest, PlacesThatAreNoNumbersArePadding) {
  const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor grid = floats({1, 1, 2, 2}, {kNan, 0, kInfinity, 0});
  EXPECT_EQ(run_node("GridSample", 16, {x, grid}).values(), Values({0, 0}));
  const auto border = run_node("GridSample", 16, {x, grid}, {{"padding_mode", std::string("border")}});
  EXPECT_EQ(border.values(), Values({2, 3}));
  EXPECT_EQ(run_node("RoiAlign", 16, {x, floats({1, 4}, {0, 0, 1, 1}), ints({1})}).status.code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::engine::test
