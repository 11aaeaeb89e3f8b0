// Which nodes become half precision, and what stays in FP32.
#include "testing/graph_fixture.h"

namespace sluice::engine {
namespace {

class PrecisionTest : public test::GraphFixture {
 protected:
  std::size_t halve(double fp32_weights = 0, double tolerance = 2e-3) {
    return apply("precision", tolerance, {Precision::kFp16, "", fp32_weights});
  }
  // The element type of what the first node of an operator computes.
  DType type_of(std::string_view op) const { return graph_.value(first(op).outputs[0]).type.dtype; }
};

TEST_F(PrecisionTest, NothingUnlessAskedFor) {
  output(node("Relu", {input("x", {4})}));
  EXPECT_EQ(apply("precision"), 0u);
}

TEST_F(PrecisionTest, ProductsBecomeHalfAndTheGraphsTypesStay) {
  const ValueId x = input("x", {1, 4, 5, 5});
  const ValueId y = node("Relu", {node("Conv", {x, weights({4, 4, 3, 3}), weights({4})})});
  output(node("Conv", {y, weights({4, 4, 1, 1})}));
  EXPECT_EQ(halve(), 3u);
  EXPECT_EQ(type_of("Conv"), DType::kFloat16);
  EXPECT_EQ(graph_.value(graph_.inputs[0]).type.dtype, DType::kFloat);
  EXPECT_EQ(graph_.value(graph_.outputs[0]).type.dtype, DType::kFloat);
  EXPECT_EQ(count("Cast"), 2u);
  EXPECT_LT(constant_bytes(graph_), 2u * (4 * 4 * 9 + 4 + 16) + 1);
}

TEST_F(PrecisionTest, SensitiveOperatorsAreIslands) {
  const ValueId x = input("x", {2, 4});
  const ValueId y = node("MatMul", {x, weights({4, 4})});
  output(node("MatMul", {node("Softmax", {y}), weights({4, 4})}));
  EXPECT_EQ(halve(), 2u);
  EXPECT_EQ(type_of("MatMul"), DType::kFloat16);
  EXPECT_EQ(type_of("Softmax"), DType::kFloat);
}

TEST_F(PrecisionTest, DecomposedLayerNormStaysWhole) {
  const ValueId x = node("MatMul", {input("x", {2, 4}), weights({4, 4})});
  const auto mean = [&](ValueId of) { return node("ReduceMean", {of}, {ints_attribute("axes", {-1})}); };
  const ValueId centred = node("Sub", {x, mean(x)});
  const ValueId variance = mean(node("Mul", {centred, centred}));
  output(node("Div", {centred, node("Sqrt", {node("Add", {variance, scalar(1e-12f)})})}));
  EXPECT_EQ(halve(), 1u);
  for (const char* op : {"ReduceMean", "Sub", "Mul", "Add", "Sqrt", "Div"}) {
    EXPECT_EQ(type_of(op), DType::kFloat) << op;
  }
}

TEST_F(PrecisionTest, AMaskBeyondHalfReachesTheSoftmaxInSingle) {
  const ValueId x = input("x", {2, 4}), masked = input("masked", {1, 4});
  const ValueId mask = node("Mul", {node("Abs", {masked}), scalar(-3.4e38f)});
  const ValueId scores = node("Add", {node("MatMul", {x, weights({4, 4})}), mask});
  output(node("Neg", {node("MatMul", {node("Softmax", {scores}), weights({4, 4})})}));
  halve();
  EXPECT_EQ(type_of("Mul"), DType::kFloat);
  EXPECT_EQ(type_of("Add"), DType::kFloat);
  EXPECT_EQ(type_of("Neg"), DType::kFloat16);
}

TEST_F(PrecisionTest, AConstantThatRoundsToNothingKeepsItsNode) {
  const ValueId x = node("MatMul", {input("x", {2, 4}), weights({4, 4})});
  output(node("Mul", {node("Add", {x, scalar(1e-9f)}), scalar(2)}));
  halve();
  EXPECT_EQ(type_of("Add"), DType::kFloat);
}

TEST_F(PrecisionTest, ASingleNumberThatRoundsBadlyKeepsItsNode) {
  const ValueId x = node("MatMul", {input("x", {2, 4}), weights({4, 4})});
  output(node("Mul", {x, scalar(0.5f)}));
  output(node("Div", {x, scalar(1.41421356f)}));
  halve();
  EXPECT_EQ(type_of("Mul"), DType::kFloat16);
  EXPECT_EQ(type_of("Div"), DType::kFloat);
  EXPECT_EQ(count("Cast"), 3u);  // x; the product's result; the quotient's input
}

TEST_F(PrecisionTest, TheSmallestWeightsStay) {
  const ValueId x = input("x", {2, 8});
  const ValueId y = node("MatMul", {x, weights({8, 40})});
  output(node("Gemm", {node("MatMul", {y, weights({40, 8})}), weights({8, 2})}));
  EXPECT_EQ(halve(0.1), 2u);
  EXPECT_EQ(type_of("MatMul"), DType::kFloat16);
  EXPECT_EQ(type_of("Gemm"), DType::kFloat);
}

TEST_F(PrecisionTest, AnOutputThatOthersReadIsBothInItsOwnTypeAndHalf) {
  const ValueId x = input("x", {2, 4});
  const ValueId y = node("MatMul", {x, weights({4, 4})});
  output(y);
  output(node("MatMul", {y, weights({4, 4})}));
  output(node("Softmax", {y}));
  EXPECT_EQ(halve(), 2u);
}

TEST_F(PrecisionTest, IntegersAndQuantisedPartsAreLeftAlone) {
  const ValueId x = input("x", {4}), indices = input("indices", {3}, DType::kInt64);
  const ValueId scale = scalar(0.01f);
  auto zero = Tensor::allocate(DType::kInt8, {});
  const ValueId zero_point = graph_.add_constant("zero", *zero);
  const ValueId q = node("QuantizeLinear", {x, scale, zero_point});
  const ValueId d = node("DequantizeLinear", {q, scale, zero_point});
  output(node("Gather", {d, node("Mul", {indices, indices})}));
  EXPECT_EQ(halve(), 0u);
}

TEST_F(PrecisionTest, InEachOpsetThatSpellsThingsDifferently) {
  for (const int opset : {10, 13}) {
    opset_ = opset;
    const ValueId x = node("MatMul", {input(opset == 10 ? "a" : "b", {2, 4}), weights({4, 4})});
    const ValueId clipped =
        opset < 11 ? node("Clip", {x}, {{"min", 0.0f}, {"max", 1.0f}}) : node("Clip", {x, scalar(0), scalar(1)});
    const ValueId wide = opset < 13 ? node("Unsqueeze", {clipped}, {ints_attribute("axes", {0})})
                                    : node("Unsqueeze", {clipped, ints({0})});
    output(node("Mul", {wide, scalar(3)}));
  }
  halve();
  EXPECT_EQ(type_of("Clip"), DType::kFloat16);
  EXPECT_EQ(type_of("Unsqueeze"), DType::kFloat16);
}

}  // namespace
}  // namespace sluice::engine
