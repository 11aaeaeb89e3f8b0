// Passes that fold into constants, and those that remove what does nothing.
#include <climits>

#include "testing/graph_fixture.h"

namespace sluice::engine {
namespace {

class NoOpsTest : public test::GraphFixture {};

TEST_F(NoOpsTest, RemovesWhatChangesNothing) {
  const ValueId x = input("x", {2, 3, 4});
  ValueId y = node("Identity", {x});
  y = node("Dropout", {y});
  y = node("Cast", {y}, {{"to", std::int64_t{1}}});
  y = node("Transpose", {y}, {ints_attribute("perm", {0, 1, 2})});
  y = node("Pad", {y, ints({0, 0, 0, 0, 0, 0})});
  y = node("Slice", {y, ints({0}), ints({INT64_MAX}), ints({1})});
  y = node("Concat", {y}, {{"axis", std::int64_t{1}}});
  y = node("Reshape", {y, ints({2, 3, 4})});
  y = node("Expand", {y, ints({3, 1})});
  output(node("Neg", {y}));
  EXPECT_EQ(apply("no_ops"), 9u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
}

TEST_F(NoOpsTest, KeepsWhatOnlyLooksLikeIt) {
  const ValueId x = input("x", {2, 2, 4});
  output(node("Relu", {node("Transpose", {x}, {ints_attribute("perm", {1, 0, 2})})}));  // the same shape
  output(node("Relu", {node("Slice", {x, ints({-1}), ints({INT64_MIN}), ints({0}), ints({-1})})}));
  output(node("Relu", {node("Pad", {x, ints({0, 0, 0, 0, 0, 1})})}));
  output(node("Relu", {node("Reshape", {x, ints({4, 4})})}));
  output(node("Relu", {node("Expand", {x, ints({3, 1, 1, 1})})}));
  EXPECT_EQ(apply("no_ops"), 0u);
}

TEST_F(NoOpsTest, AnOutputIsWrittenByTheNodeBefore) {
  const ValueId x = input("x", {4});
  const ValueId before = node("Neg", {x});
  output(node("Identity", {before}));
  output(node("Relu", {before}));
  EXPECT_EQ(apply("no_ops"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 2u);
}

TEST_F(NoOpsTest, AnOutputThatCopiesAnInputOrAnotherOutputStays) {
  const ValueId x = input("x", {4});
  const ValueId y = node("Neg", {x});
  output(node("Identity", {x}));
  output(y);
  output(node("Identity", {y}));
  EXPECT_EQ(apply("no_ops"), 0u);
}

TEST_F(NoOpsTest, ADropoutWhoseMaskIsUsedStays) {
  const ValueId x = input("x", {4});
  output(node("Dropout", {x}, {}, 2));
  const ValueId mask = graph_.nodes.back().outputs[1];
  output(node("Cast", {mask}, {{"to", std::int64_t{1}}}));
  EXPECT_EQ(apply("no_ops"), 0u);
}

TEST_F(NoOpsTest, JoinsTransposesReshapesAndWideningCasts) {
  const ValueId x = input("x", {2, 3, 4});
  const ValueId t = node("Transpose", {x}, {ints_attribute("perm", {1, 2, 0})});
  output(node("Transpose", {t}, {ints_attribute("perm", {0, 2, 1})}));
  output(node("Reshape", {node("Reshape", {x, ints({6, 4})}), ints({3, -1})}));
  const ValueId wide = node("Cast", {node("Cast", {x}, {{"to", std::int64_t{11}}})}, {{"to", std::int64_t{1}}});
  output(node("Neg", {wide}));
  EXPECT_EQ(apply("no_ops"), 4u);  // the cast back is then one to the same type
  EXPECT_EQ(count("Transpose"), 1u);
  EXPECT_EQ(count("Reshape"), 1u);
  EXPECT_EQ(count("Cast"), 0u);
}

TEST_F(NoOpsTest, ANarrowingCastStays) {
  const ValueId x = input("x", {4});
  const ValueId half = node("Cast", {x}, {{"to", std::int64_t{10}}});
  output(node("Neg", {node("Cast", {half}, {{"to", std::int64_t{1}}})}));
  EXPECT_EQ(apply("no_ops"), 0u);
}

TEST_F(NoOpsTest, AReshapeThatCopiesADimensionStays) {
  const ValueId x = input("x", {2, 3, 4});
  output(node("Reshape", {node("Reshape", {x, ints({6, 4})}), ints({0, 2, 2})}));
  EXPECT_EQ(apply("no_ops"), 0u);
}

class FoldTest : public test::GraphFixture {
 protected:
  ValueId normalized(ValueId from, std::int64_t channels) {
    return node("BatchNormalization",
                {from, weights({channels}), weights({channels}), weights({channels}), weights({channels}, 0.5, 2)});
  }
};

TEST_F(FoldTest, BatchNormIntoConv) {
  const ValueId x = input("x", {1, 4, 5, 5});
  output(normalized(node("Conv", {x, weights({6, 2, 3, 3}), weights({6})}, {{"group", std::int64_t{2}}}), 6));
  output(normalized(node("Conv", {x, weights({6, 4, 1, 1})}), 6));
  EXPECT_EQ(apply("batch_norm"), 2u);
  EXPECT_EQ(graph_.nodes.size(), 2u);
}

TEST_F(FoldTest, BatchNormIntoGroupedConvTranspose) {
  const ValueId x = input("x", {1, 4, 5, 5});
  output(normalized(node("ConvTranspose", {x, weights({4, 3, 2, 2})}, {{"group", std::int64_t{2}}}), 6));
  EXPECT_EQ(apply("batch_norm"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
}

TEST_F(FoldTest, BatchNormIntoGemm) {
  const ValueId x = input("x", {3, 4});
  output(normalized(node("Gemm", {x, weights({4, 6}), weights({1, 6})}, {{"alpha", 0.5f}, {"beta", 2.0f}}), 6));
  output(normalized(node("Gemm", {x, weights({6, 4}), weights({1})}, {{"transB", std::int64_t{1}}}), 6));
  EXPECT_EQ(apply("batch_norm"), 2u);
  EXPECT_EQ(graph_.nodes.size(), 2u);
}

TEST_F(FoldTest, WeightsThatAnotherNodeUsesAreNotChanged) {
  const ValueId x = input("x", {1, 4, 5, 5}), shared = weights({6, 4, 1, 1});
  output(normalized(node("Conv", {x, shared}), 6));
  output(node("Conv", {x, shared}));
  EXPECT_EQ(apply("batch_norm"), 1u);
}

TEST_F(FoldTest, NoBatchNormPastAnOutputOrAnotherUserOrWithUnknownWeights) {
  const ValueId x = input("x", {1, 4, 5, 5}), w = input("w", {6, 4, 1, 1});
  const ValueId seen = node("Conv", {x, weights({6, 4, 1, 1})}), shared = node("Conv", {x, weights({6, 4, 1, 1})});
  output(seen);
  output(normalized(seen, 6));
  output(normalized(shared, 6));
  output(node("Relu", {shared}));
  output(normalized(node("Conv", {x, w}), 6));
  EXPECT_EQ(apply("batch_norm"), 0u);
}

TEST_F(FoldTest, ConstantsAreComputedButQuantisedWeightsStay) {
  const ValueId x = input("x", {4});
  const ValueId quantised = graph_.add_constant("q", *Tensor::allocate(DType::kInt8, {4}));
  const ValueId zero_point = graph_.add_constant("zero", *Tensor::allocate(DType::kInt8, {}));
  output(node("Add", {x, node("DequantizeLinear", {quantised, scalar(0.5f), zero_point})}));
  output(node("Add", {x, node("Mul", {weights({4}), node("Neg", {weights({4})})})}));
  EXPECT_EQ(apply("constant_folding"), 2u);
  EXPECT_EQ(count("DequantizeLinear"), 1u);
  EXPECT_EQ(count("Mul"), 0u);
}

TEST_F(FoldTest, ScaleAndShiftIntoConv) {
  const ValueId x = input("x", {1, 4, 5, 5});
  ValueId y = node("Conv", {x, weights({6, 4, 3, 3})});
  y = node("Mul", {y, weights({1, 6, 1, 1})});
  y = node("Add", {weights({6, 1, 1}), y});
  y = node("Sub", {y, scalar(0.5f)});
  output(node("Sub", {scalar(1), node("Div", {y, scalar(3)})}));
  EXPECT_EQ(apply("channel_affine"), 5u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
}

TEST_F(FoldTest, NoShiftAlongAnotherAxisOrThatWidens) {
  const ValueId x = input("x", {1, 4, 6, 6});
  const auto conv = [&] { return node("Conv", {x, weights({6, 4, 1, 1})}); };
  output(node("Add", {conv(), weights({6})}));     // along the last axis
  output(node("Add", {conv(), weights({6, 1})}));  // along the rows
  output(node("Add", {conv(), weights({1, 1, 6, 1, 1})}));
  output(node("Add", {conv(), weights({1, 6, 6, 1})}));
  output(node("Add", {conv(), conv()}));
  EXPECT_EQ(apply("channel_affine"), 0u);
}

}  // namespace
}  // namespace sluice::engine
