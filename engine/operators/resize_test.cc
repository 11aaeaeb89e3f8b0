// What ONNX's conformance data does not show of Resize, Upsample, Pad and Tile.
#include "testing/run_node.h"

namespace sluice::engine::test {
namespace {

using Values = std::vector<double>;

TEST(ResizeTest, OldVersionsTakeScalesFromAttributeOrInput) {
  const Tensor x = floats({1, 1, 1, 4}, {1, 2, 3, 4});
  const auto by_attribute = run_node("Upsample", 7, {x}, {{"scales", std::vector<float>{1, 1, 1, 2}}});
  ASSERT_TRUE(by_attribute.status.ok()) << by_attribute.status.message();
  EXPECT_EQ(by_attribute.values(), Values({1, 1, 2, 2, 3, 3, 4, 4}));
  const auto by_input = run_node("Upsample", 9, {x, floats({4}, {1, 1, 1, 2})});
  ASSERT_TRUE(by_input.status.ok()) << by_input.status.message();
  EXPECT_EQ(by_input.values(), by_attribute.values());
  const auto linear = run_node("Resize", 10, {x, floats({4}, {1, 1, 1, 2})}, {{"mode", std::string("linear")}});
  ASSERT_TRUE(linear.status.ok()) << linear.status.message();
  EXPECT_EQ(linear.values(), Values({1, 1.5, 2, 2.5, 3, 3.5, 4, 4}));  // asymmetric
}

TEST(ResizeTest, SizesOfAnyNumberOfDimensions) {
  const Tensor x = floats({2, 2}, {0, 2, 4, 6});
  const auto run =
      run_node("Resize", 13, {x, {}, {}, ints({3, 3})},
               {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("align_corners")}});
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.values(), Values({0, 1, 2, 2, 3, 4, 4, 5, 6}));
}

TEST(ResizeTest, EmptyScalesAreNone) {
  const auto run = run_node("Resize", 11, {floats({2}, {1, 2}), floats({0}, {}), floats({0}, {}), ints({4})});
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.values(), Values({1, 1, 2, 2}));
}

TEST(ResizeTest, NearestKeepsAnyTypeAndInterpolationRefusesIntegers) {
  const Tensor x = ints({1, 2});
  EXPECT_EQ(run_node("Resize", 13, {x, {}, floats({1}, {2})}).values(), Values({1, 1, 2, 2}));
  const auto linear = run_node("Resize", 13, {x, {}, floats({1}, {2})}, {{"mode", std::string("linear")}});
  EXPECT_EQ(linear.status.code(), Code::kUnimplemented);
}

TEST(ResizeTest, RefusesWhatItDoesNotHonour) {
  const Tensor x = floats({2}, {1, 2}), twice = floats({1}, {2});
  const auto with = [&](const char* name, const char* value, int opset) {
    return run_node("Resize", opset, {x, floats({0}, {}), twice}, {{name, std::string(value)}}).status.code();
  };
  EXPECT_EQ(with("mode", "area", 13), Code::kUnimplemented);
  EXPECT_EQ(with("nearest_mode", "up", 13), Code::kUnimplemented);
  EXPECT_EQ(with("coordinate_transformation_mode", "tf_half_pixel_for_nn", 13), Code::kUnimplemented);
  EXPECT_EQ(with("coordinate_transformation_mode", "tf_half_pixel_for_nn", 11), Code::kOk);
  EXPECT_EQ(run_node("Resize", 13, {x, {}, twice, ints({4})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Resize", 13, {x}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Resize", 13, {x, {}, floats({1}, {-1})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Resize", 13, {x, {}, floats({1}, {1e30f})}).status.code(), Code::kInvalidArgument);
}

TEST(PadTest, NegativePadsCropAndOldVersionsTakeAttributes) {
  const Tensor x = floats({4}, {1, 2, 3, 4});
  EXPECT_EQ(run_node("Pad", 13, {x, ints({-1, 2})}).values(), Values({2, 3, 4, 0, 0}));
  EXPECT_EQ(run_node("Pad", 13, {x, ints({-1, 2})}, {{"mode", std::string("reflect")}}).values(),
            Values({2, 3, 4, 3, 2}));
  const auto old = run_node("Pad", 10, {x}, {{"pads", std::vector<std::int64_t>{1, 0}}, {"value", 7.0f}});
  EXPECT_EQ(old.values(), Values({7, 1, 2, 3, 4}));
}

TEST(PadTest, ReflectionGoesOnAndNothingHasNoEdge) {
  const Tensor x = floats({3}, {1, 2, 3});
  EXPECT_EQ(run_node("Pad", 13, {x, ints({0, 6})}, {{"mode", std::string("reflect")}}).values(),
            Values({1, 2, 3, 2, 1, 2, 3, 2, 1}));
  EXPECT_EQ(run_node("Pad", 13, {floats({0}, {}), ints({1, 0})}, {{"mode", std::string("edge")}}).status.code(),
            Code::kInvalidArgument);
  EXPECT_EQ(run_node("Pad", 13, {x, ints({-2, -2})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Pad", 13, {x, ints({0, 0, 0})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Pad", 13, {x, ints({0, std::int64_t{1} << 62})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Pad", 13, {x, ints({0, 1})}, {{"mode", std::string("wrap")}}).status.code(),
            Code::kUnimplemented);
}

TEST(TileTest, EmptyAndInvalidRepeats) {
  const Tensor x = floats({2}, {1, 2});
  EXPECT_EQ(run_node("Tile", 13, {x, ints({0})}).dims(), Dims({0}));
  EXPECT_EQ(run_node("Tile", 13, {x, ints({-1})}).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(run_node("Tile", 13, {x, ints({std::int64_t{1} << 62})}).status.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::engine::test
