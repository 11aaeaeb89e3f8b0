// Convolutions, products, normalisation, attention and elementwise chains: what is fused, and what must not be.
#include <cmath>

#include "testing/graph_fixture.h"

namespace sluice::engine {
namespace {

class FusionTest : public test::GraphFixture {
 protected:
  std::string activation(std::string_view op) const { return first(op).get_string("activation", "none"); }
};

// ---- Conv ----

TEST_F(FusionTest, ConvWithResidualAndActivation) {
  const ValueId x = input("x", {1, 4, 5, 5});
  const ValueId y = node("Conv", {x, weights({4, 2, 3, 3}), weights({4})},
                         {{"group", std::int64_t{2}}, ints_attribute("pads", {1, 1, 1, 1})});
  output(node("Relu", {node("Add", {x, y})}));
  EXPECT_EQ(apply("conv_fusion"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
  EXPECT_EQ(activation("FusedConv"), "relu");
}

TEST_F(FusionTest, ConvWithEachActivation) {
  const ValueId x = input("x", {1, 2, 3, 3});
  const auto conv = [&] { return node("Conv", {x, weights({2, 2, 1, 1})}); };
  for (const char* op : {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid"}) {
    output(node(op, {conv()}));
  }
  output(node("Clip", {conv(), scalar(0), scalar(0.5f)}));
  output(node("Clip", {conv(), kNoValue, scalar(0.25f)}));
  EXPECT_EQ(apply("conv_fusion"), 8u);
  EXPECT_EQ(graph_.nodes.size(), 8u);
}

TEST_F(FusionTest, ConvAndClipOfOpset10) {
  opset_ = 10;
  const ValueId x = input("x", {1, 2, 3, 3});
  output(node("Clip", {node("Conv", {x, weights({2, 2, 1, 1})})}, {{"min", 0.0f}, {"max", 0.5f}}));
  EXPECT_EQ(apply("conv_fusion"), 1u);
}

TEST_F(FusionTest, NoConvPastAnOutputOrAnotherUser) {
  const ValueId x = input("x", {1, 2, 3, 3});
  const ValueId seen = node("Conv", {x, weights({2, 2, 1, 1})}), shared = node("Conv", {x, weights({2, 2, 1, 1})});
  output(seen);
  output(node("Relu", {seen}));
  output(node("Relu", {shared}));
  output(node("Neg", {shared}));
  EXPECT_EQ(apply("conv_fusion"), 0u);
}

TEST_F(FusionTest, NoResidualThatBroadcasts) {
  const ValueId x = input("x", {1, 2, 3, 3}), small = input("small", {1, 2, 1, 1}), wide = input("wide", {2, 2, 3, 3});
  const auto conv = [&] { return node("Conv", {x, weights({2, 2, 1, 1})}); };
  output(node("Add", {conv(), small}));
  output(node("Add", {conv(), wide}));
  EXPECT_EQ(apply("conv_fusion"), 0u);
}

TEST_F(FusionTest, AConvAddedToItselfIsNoResidual) {
  const ValueId x = input("x", {1, 2, 3, 3});
  const ValueId y = node("Conv", {x, weights({2, 2, 1, 1})});
  output(node("Add", {y, y}));
  EXPECT_EQ(apply("conv_fusion"), 0u);
}

TEST_F(FusionTest, TwoConvsAddedKeepBoth) {
  const ValueId x = input("x", {1, 2, 3, 3});
  const ValueId a = node("Conv", {x, weights({2, 2, 1, 1})}), b = node("Conv", {x, weights({2, 2, 1, 1})});
  output(node("Relu", {node("Add", {a, b})}));
  EXPECT_EQ(apply("conv_fusion"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 2u);
}

// ---- MatMul and Gemm ----

TEST_F(FusionTest, MatMulWithScaleBiasResidualAndActivation) {
  const ValueId x = input("x", {2, 3, 4}), r = input("r", {2, 3, 5});
  ValueId y = node("MatMul", {x, weights({4, 5})});
  y = node("Div", {y, scalar(8)});
  y = node("Add", {weights({5}), y});
  y = node("Add", {y, r});
  output(node("Relu", {y}));
  EXPECT_EQ(apply("matmul_fusion"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
  EXPECT_FLOAT_EQ(first("FusedMatMul").get_float("scale", 1), 0.125f);
}

TEST_F(FusionTest, MatMulWithScaledInputs) {
  const ValueId x = input("x", {2, 3, 4}), w = input("w", {2, 4, 5});
  output(node("MatMul", {node("Mul", {x, scalar(0.5f)}), node("Mul", {scalar(0.25f), w})}));
  EXPECT_EQ(apply("matmul_fusion"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
}

TEST_F(FusionTest, GemmInItsForms) {
  const ValueId x = input("x", {3, 4}), c = input("c", {3, 5});
  output(node("Gemm", {x, weights({5, 4}), weights({1, 5})}, {{"transB", std::int64_t{1}}, {"alpha", 0.5f}}));
  output(node("Tanh", {node("Gemm", {x, weights({4, 5})})}));
  output(node("Gemm", {x, weights({4, 5}), c}));
  output(node("Gemm", {x, weights({3, 2}), weights({2})}, {{"transA", std::int64_t{1}}}));
  EXPECT_EQ(apply("matmul_fusion"), 4u);
  EXPECT_EQ(graph_.nodes.size(), 4u);
}

TEST_F(FusionTest, NoGemmWithAColumnOrAScaledAddend) {
  const ValueId x = input("x", {3, 4});
  output(node("Gemm", {x, weights({4, 5}), weights({3, 1})}));
  output(node("Gemm", {x, weights({4, 5}), weights({5})}, {{"beta", 0.5f}}));
  EXPECT_EQ(apply("matmul_fusion"), 0u);
}

TEST_F(FusionTest, MatMulLeavesWhatWidensOrIsSeen) {
  const ValueId x = input("x", {3, 4}), wide = input("wide", {2, 3, 5});
  const ValueId y = node("MatMul", {x, weights({4, 5})});
  output(node("Add", {y, wide}));
  const ValueId seen = node("MatMul", {x, weights({4, 5})});
  output(seen);
  output(node("Add", {seen, weights({5})}));
  output(node("Add", {node("MatMul", {x, weights({4, 5})}), weights({3, 1})}));
  EXPECT_EQ(apply("matmul_fusion"), 3u);
  EXPECT_EQ(count("Add"), 3u);
}

// ---- LayerNormalization ----

class LayerNormTest : public FusionTest {
 protected:
  struct Form {
    bool by_product = false;  // Mul in place of Pow
    bool two_subs = false;    // as older exporters write it
    bool affine = true;
    std::vector<std::int64_t> axes = {-1};
  };
  ValueId centred(const Form& form) {
    return node("Sub", {x_, node("ReduceMean", {x_}, {ints_attribute("axes", form.axes)})});
  }
  ValueId layer_norm(const Form& form) {
    const ValueId top = centred(form), below = form.two_subs ? centred(form) : top;
    const ValueId squares = form.by_product ? node("Mul", {below, below}) : node("Pow", {below, scalar(2)});
    variance_ = node("ReduceMean", {squares}, {ints_attribute("axes", form.axes)});
    const ValueId y = node("Div", {top, node("Sqrt", {node("Add", {variance_, scalar(1e-5f)})})});
    return form.affine ? node("Add", {node("Mul", {y, weights({4})}), weights({4})}) : y;
  }
  const ValueId x_ = input("x", {2, 3, 4});
  ValueId variance_ = kNoValue;
};

TEST_F(LayerNormTest, InItsForms) {
  output(layer_norm({}));
  output(layer_norm({.by_product = true}));
  output(layer_norm({.two_subs = true}));
  output(layer_norm({.affine = false}));
  output(layer_norm({.affine = false, .axes = {1, 2}}));
  EXPECT_EQ(apply("layer_norm"), 5u);
  EXPECT_EQ(graph_.nodes.size(), 5u);
  EXPECT_FLOAT_EQ(first("LayerNormalization").get_float("epsilon", 0), 1e-5f);
}

TEST_F(LayerNormTest, NotOverOtherAxesOrWhereAPartIsSeen) {
  output(layer_norm({.affine = false, .axes = {1}}));
  output(layer_norm({}));
  output(variance_);
  EXPECT_EQ(apply("layer_norm"), 0u);
}

TEST_F(LayerNormTest, AGammaAlongAnotherAxisStaysOutside) {
  output(node("Mul", {layer_norm({.affine = false}), weights({3, 1})}));
  EXPECT_EQ(apply("layer_norm"), 1u);
  EXPECT_EQ(count("Mul"), 1u);
}

// ---- Attention ----

class AttentionTest : public FusionTest {
 protected:
  static constexpr std::int64_t kBatch = 2, kTokens = 3, kHeads = 2, kSize = 4, kWidth = kHeads * kSize;

  ValueId split(ValueId rows, std::vector<std::int64_t> perm) {
    return node("Transpose", {node("Reshape", {rows, ints({kBatch, kTokens, kHeads, kSize})})},
                {ints_attribute("perm", std::move(perm))});
  }
  ValueId join(ValueId heads) {
    return node("Reshape",
                {node("Transpose", {heads}, {ints_attribute("perm", {0, 2, 1, 3})}), ints({kBatch, kTokens, kWidth})});
  }
  // As BERT: separate rows, the scale behind the product, a mask.
  ValueId bert(ValueId* probabilities = nullptr) {
    const ValueId mask = input("mask", {kBatch, 1, 1, kTokens});
    const ValueId q = split(input("q", {kBatch, kTokens, kWidth}), {0, 2, 1, 3});
    const ValueId k = split(input("k", {kBatch, kTokens, kWidth}), {0, 2, 3, 1});
    const ValueId v = split(input("v", {kBatch, kTokens, kWidth}), {0, 2, 1, 3});
    const ValueId scores = node("Add", {node("Div", {node("MatMul", {q, k}), scalar(2)}), mask});
    const ValueId weights = node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    if (probabilities != nullptr) {
      *probabilities = weights;
    }
    return join(node("MatMul", {weights, v}));
  }
};

TEST_F(AttentionTest, AsBertWritesIt) {
  output(bert());
  EXPECT_EQ(apply("attention"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
  EXPECT_FLOAT_EQ(first("FusedAttention").get_float("scale", 1), 0.5f);
}

TEST_F(AttentionTest, AsVitWritesIt) {
  const ValueId rows = input("rows", {kBatch, kTokens, 3 * kWidth});
  const ValueId parts = node("Transpose", {node("Reshape", {rows, ints({kBatch, kTokens, 3, kHeads, kSize})})},
                             {ints_attribute("perm", {2, 0, 3, 1, 4})});
  const auto part = [&](std::int64_t which) {
    auto index = Tensor::allocate(DType::kInt64, {});
    *index->mutable_as<std::int64_t>() = which;
    return node("Gather", {parts, graph_.add_constant("index", *index)}, {{"axis", std::int64_t{0}}});
  };
  const ValueId q = node("Mul", {part(0), scalar(0.7f)});
  const ValueId k = node("Mul", {node("Transpose", {part(1)}, {ints_attribute("perm", {0, 1, 3, 2})}), scalar(0.7f)});
  output(join(node("MatMul", {node("Softmax", {node("MatMul", {q, k})}, {{"axis", std::int64_t{-1}}}), part(2)})));
  EXPECT_EQ(apply("attention"), 1u);
  EXPECT_EQ(graph_.nodes.size(), 1u);
  EXPECT_EQ(first("FusedAttention").get_ints("offsets"), (std::vector<std::int64_t>{0, kWidth, 2 * kWidth}));
}

TEST_F(AttentionTest, NotWhereTheProbabilitiesAreAnOutput) {
  ValueId probabilities = kNoValue;
  output(bert(&probabilities));
  output(probabilities);
  EXPECT_EQ(apply("attention"), 0u);
}

TEST_F(AttentionTest, NotWithASoftmaxOverAnotherAxis) {
  output(bert());
  for (Node& candidate : graph_.nodes) {
    if (candidate.op == "Softmax") {
      candidate.set("axis", std::int64_t{2});
    }
  }
  EXPECT_EQ(apply("attention"), 0u);
}

// ---- Elementwise chains ----

TEST_F(FusionTest, ElementwiseTreeAsOneNode) {
  const ValueId x = input("x", {2, 3, 4}), row = input("row", {4}), other = input("other", {2, 3, 4});
  const ValueId left = node("Relu", {node("Mul", {x, scalar(0.5f)})});
  const ValueId right = node("Exp", {node("Sub", {other, row})});
  output(node("Clip", {node("Add", {left, right}), scalar(-1), scalar(3)}));
  EXPECT_EQ(apply("elementwise"), 1u);
  ASSERT_EQ(graph_.nodes.size(), 1u);
  EXPECT_EQ(first("FusedElementwise").inputs.size(), 3u);
}

TEST_F(FusionTest, ElementwiseStopsAtOutputsUsersAndSmallerShapes) {
  const ValueId x = input("x", {2, 4}), row = input("row", {4});
  const ValueId seen = node("Neg", {x});
  output(seen);
  output(node("Abs", {seen}));
  const ValueId small = node("Exp", {row});  // computed once a column, not once an element
  output(node("Add", {x, small}));
  EXPECT_EQ(apply("elementwise"), 0u);
}

TEST_F(FusionTest, ElementwiseKeepsAShapeThatAConstantWidens) {
  const ValueId x = input("x", {2, 4});
  output(node("Abs", {node("Mul", {x, constant({1, 1, 1}, {2})})}));
  EXPECT_EQ(apply("elementwise"), 0u);
}

TEST_F(FusionTest, ElementwiseLeavesIntegers) {
  const ValueId x = input("x", {4}, DType::kInt64);
  output(node("Cast", {node("Neg", {node("Add", {x, ints({1, 2, 3, 4})})})}, {{"to", std::int64_t{1}}}));
  EXPECT_EQ(apply("elementwise"), 0u);
}

}  // namespace
}  // namespace sluice::engine
