#include "testing/graph_fixture.h"

namespace sluice::engine {
namespace {

class LayoutTest : public test::GraphFixture {
 protected:
  LayoutTest() { context_.device = "cpu"; }
  std::size_t apply() { return GraphFixture::apply("layout", 1e-5, context_); }
  ValueId conv(ValueId x, Dims shape, std::vector<Attribute> attributes = {}, bool bias = true) {
    const std::int64_t out = shape[0];
    std::vector<ValueId> inputs = {x, weights(std::move(shape), -0.3f, 0.3f)};
    if (bias) {
      inputs.push_back(weights({out}));
    }
    return node("Conv", std::move(inputs), std::move(attributes));
  }
  void restart() { graph_ = {}; }
  PassContext context_;
};

TEST_F(LayoutTest, ConvolutionsOfManyShapes) {
  struct Case {
    Dims x, w;
    std::vector<Attribute> attributes;
  };
  const Attribute same{"auto_pad", std::string("SAME_UPPER")}, lower{"auto_pad", std::string("SAME_LOWER")};
  const std::vector<Case> cases = {
      {{2, 16, 9, 11}, {24, 16, 3, 3}, {ints_attribute("pads", {1, 1, 1, 1})}},
      {{1, 8, 14, 14}, {8, 8, 3, 3}, {ints_attribute("pads", {1, 1, 1, 1}), ints_attribute("strides", {2, 2})}},
      {{1, 8, 10, 12}, {16, 8, 5, 3}, {ints_attribute("pads", {0, 2, 3, 1}), ints_attribute("strides", {1, 2})}},
      {{1, 16, 12, 12}, {40, 16, 3, 3}, {ints_attribute("pads", {2, 2, 2, 2}), ints_attribute("dilations", {2, 2})}},
      {{3, 64, 7, 7}, {32, 64, 1, 1}, {}},
      {{1, 16, 9, 9}, {64, 16, 1, 1}, {ints_attribute("strides", {2, 2})}},
      {{1, 16, 9, 9}, {64, 16, 1, 1}, {ints_attribute("strides", {2, 2}), ints_attribute("pads", {1, 1, 1, 1})}},
      {{1, 3, 20, 20}, {16, 3, 7, 7}, {ints_attribute("pads", {3, 3, 3, 3}), ints_attribute("strides", {2, 2})}},
      {{2, 1, 8, 9}, {8, 1, 3, 3}, {}},
      {{1, 13, 8, 8}, {8, 13, 3, 3}, {same}},
      {{1, 8, 8, 9}, {8, 8, 4, 4}, {same, ints_attribute("strides", {2, 2})}},
      {{1, 8, 8, 9}, {8, 8, 4, 4}, {lower}},
      {{1, 256, 5, 5}, {256, 256, 3, 3}, {ints_attribute("pads", {1, 1, 1, 1})}},
      {{2, 16, 70, 1}, {24, 16, 5, 1}, {}},
      {{1, 8, 40, 1}, {8, 8, 3, 1}, {ints_attribute("pads", {1, 0, 1, 0}), ints_attribute("strides", {2, 1})}},
      {{1, 8, 40, 1}, {8, 1, 5, 1}, {{"group", std::int64_t{8}}, ints_attribute("pads", {2, 0, 2, 0})}},
      {{1, 8, 1, 40}, {16, 8, 1, 5}, {ints_attribute("pads", {0, 2, 0, 2})}},
      {{2, 24, 10, 11}, {24, 1, 3, 3}, {{"group", std::int64_t{24}}, ints_attribute("pads", {1, 1, 1, 1})}},
      {{1, 16, 15, 13},
       {16, 1, 5, 5},
       {{"group", std::int64_t{16}}, ints_attribute("pads", {2, 2, 2, 2}), ints_attribute("strides", {2, 2})}},
      {{1, 8, 3, 2}, {8, 1, 5, 5}, {{"group", std::int64_t{8}}, ints_attribute("pads", {2, 2, 2, 2})}},
      {{1, 8, 20, 21},
       {8, 1, 3, 3},
       {{"group", std::int64_t{8}}, ints_attribute("dilations", {2, 3}), ints_attribute("pads", {3, 2, 1, 0})}},
  };
  for (const Case& at : cases) {
    for (const bool bias : {true, false}) {
      restart();
      output(conv(input("x", at.x), at.w, at.attributes, bias));
      EXPECT_EQ(apply(), 1u);
      EXPECT_EQ(count("BlockedConv"), 1u);
    }
  }
}

TEST_F(LayoutTest, FusedConvolutionsWithResiduals) {
  for (const char* activation : {"none", "relu", "silu", "hard_swish", "clip"}) {
    for (const std::int64_t group : {1, 16}) {
      restart();
      const ValueId x = input("x", {2, 16, 8, 8});
      const ValueId y = conv(x, {16, 16 / group, 3, 3}, {ints_attribute("pads", {1, 1, 1, 1}), {"group", group}});
      graph_.nodes.back().op = "FusedConv";
      graph_.nodes.back().domain = kOwnDomain;
      graph_.nodes.back().inputs.push_back(x);
      graph_.nodes.back().set("activation", std::string(activation));
      output(y);
      EXPECT_EQ(apply(), 1u);
      EXPECT_EQ(count("Block"), 1u);  // for the convolution and its residual
    }
  }
}

// The weights are so many that they pass by in parts.
TEST_F(LayoutTest, AResidualOfAConvolutionWithManyChannels) {
  const ValueId x = input("x", {1, 256, 5, 5});
  const ValueId y = conv(x, {256, 256, 3, 3}, {ints_attribute("pads", {1, 1, 1, 1})});
  graph_.nodes.back().op = "FusedConv";
  graph_.nodes.back().domain = kOwnDomain;
  graph_.nodes.back().inputs.push_back(x);
  graph_.nodes.back().set("activation", std::string("relu"));
  output(y);
  EXPECT_EQ(apply(), 1u);
}

TEST_F(LayoutTest, WhatStandsBetweenConvolutionsStaysBlocked) {
  ValueId x = conv(input("x", {2, 3, 17, 16}), {16, 3, 3, 3});
  x = node("Relu", {x});
  x = node("MaxPool", {x},
           {ints_attribute("kernel_shape", {3, 3}),
            ints_attribute("strides", {2, 2}),
            ints_attribute("pads", {1, 1, 1, 1}),
            {"ceil_mode", std::int64_t{1}}});
  const ValueId pooled = node("GlobalAveragePool", {x});
  const ValueId gate = node("Sigmoid", {conv(pooled, {16, 16, 1, 1})});
  x = node("Mul", {x, gate});
  x = node("Add", {x, weights({16, 1, 1})});
  x = node("Mul", {scalar(0.5f), x});
  x = node("AveragePool", {x},
           {ints_attribute("kernel_shape", {2, 3}),
            ints_attribute("pads", {1, 1, 0, 1}),
            {"count_include_pad", std::int64_t{1}},
            {"ceil_mode", std::int64_t{1}},
            ints_attribute("strides", {2, 2})});
  output(conv(x, {8, 16, 1, 1}));
  EXPECT_EQ(apply(), 9u);
  EXPECT_EQ(count("Block"), 0u);
  EXPECT_EQ(count("Unblock"), 1u);
}

TEST_F(LayoutTest, SplitConcatAndResize) {
  ValueId x = conv(input("x", {1, 16, 6, 5}), {32, 16, 1, 1});
  const ValueId first = node("Split", {x, ints({8, 24})}, {{"axis", std::int64_t{1}}}, 2);
  const ValueId second = graph_.nodes.back().outputs[1];
  const ValueId wide = node("Resize", {second, kNoValue, constant({4}, {1, 1, 2, 3})},
                            {{"mode", std::string("nearest")},
                             {"coordinate_transformation_mode", std::string("asymmetric")},
                             {"nearest_mode", std::string("floor")}});
  const ValueId also = node("Resize", {first, kNoValue, constant({4}, {1, 1, 2, 3})});
  output(conv(node("Concat", {wide, also}, {{"axis", std::int64_t{1}}}), {8, 32, 1, 1}));
  apply();
  EXPECT_EQ(count("BlockedResize"), 2u);
  EXPECT_EQ(count("Unblock"), 1u);
  EXPECT_EQ(count("Block"), 1u);
}

TEST_F(LayoutTest, AValueNeededBothWaysIsReorderedOnce) {
  const ValueId x = conv(input("x", {1, 8, 4, 4}), {8, 8, 1, 1});
  output(x);
  output(node("Transpose", {x}, {ints_attribute("perm", {0, 2, 3, 1})}));
  output(conv(x, {8, 8, 1, 1}));
  apply();
  EXPECT_EQ(count("Unblock"), 2u);
  EXPECT_EQ(count("Block"), 1u);
}

TEST_F(LayoutTest, LeavesAloneWhatHasNoBlocks) {
  output(conv(input("x", {1, 8, 6, 6}), {12, 8, 3, 3}));
  EXPECT_EQ(apply(), 0u);
  restart();
  output(conv(input("x", {1, 16, 6, 6}), {16, 8, 3, 3}, {{"group", std::int64_t{2}}}));
  EXPECT_EQ(apply(), 0u);
  restart();
  const ValueId x = input("x", {1, 8, 6, 6}), w = input("w", {8, 8, 3, 3});
  output(node("Conv", {x, w}));
  EXPECT_EQ(apply(), 0u);
  restart();
  context_.device = "another";
  output(conv(input("x", {1, 8, 6, 6}), {8, 8, 3, 3}));
  EXPECT_EQ(apply(), 0u);
}

}  // namespace
}  // namespace sluice::engine
