// SiLU, HardSwish and GELU: the forms that exporters write, and what only looks like them.
#include <cmath>

#include "testing/graph_fixture.h"

namespace sluice::engine {
namespace {

class ActivationPassTest : public test::GraphFixture {
 protected:
  ActivationPassTest() : x_(input("x", {2, 3, 4})) {}
  std::string activation() const { return first("FusedActivation").get_string("activation", ""); }
  ValueId clip(ValueId from, float low, float high) {
    return opset_ < 11 ? node("Clip", {from}, {{"min", low}, {"max", high}})
                       : node("Clip", {from, scalar(low), scalar(high)});
  }
  // 1 + erf(x * sqrt(1/2)).
  ValueId erf_plus_one() { return node("Add", {node("Erf", {node("Div", {x_, scalar(std::sqrt(2.0f))})}), scalar(1)}); }
  const ValueId x_;
};

TEST_F(ActivationPassTest, SiluInEitherOrder) {
  output(node("Mul", {x_, node("Sigmoid", {x_})}));
  output(node("Mul", {node("Sigmoid", {x_}), x_}));
  EXPECT_EQ(apply("silu"), 2u);
  EXPECT_EQ(graph_.nodes.size(), 2u);
  EXPECT_EQ(activation(), "silu");
}

TEST_F(ActivationPassTest, NoSiluOfAnotherValue) {
  output(node("Mul", {node("Relu", {x_}), node("Sigmoid", {x_})}));
  EXPECT_EQ(apply("silu"), 0u);
}

TEST_F(ActivationPassTest, NoSiluWhereTheSigmoidIsAnOutputOrUsedTwice) {
  const ValueId gate = node("Sigmoid", {x_}), other = node("Sigmoid", {x_});
  output(node("Mul", {x_, gate}));
  output(gate);
  output(node("Mul", {x_, other}));
  output(node("Neg", {other}));
  EXPECT_EQ(apply("silu"), 0u);
}

TEST_F(ActivationPassTest, HardSwishOfHardSigmoid) {
  output(node("Mul", {x_, node("HardSigmoid", {x_}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}})}));
  output(node("Mul", {node("HardSigmoid", {x_}), x_}));  // ONNX's defaults: 0.2, 0.5
  EXPECT_EQ(apply("hard_swish"), 2u);
  EXPECT_EQ(activation(), "hard_swish");
}

TEST_F(ActivationPassTest, HardSwishOfClipWithTheDivisionAnywhere) {
  for (const int opset : {10, 13}) {
    opset_ = opset;
    const auto gate = [&] { return clip(node("Add", {x_, scalar(3)}), 0, 6); };
    output(node("Div", {node("Mul", {x_, gate()}), scalar(6)}));
    output(node("Mul", {node("Mul", {gate(), x_}), scalar(1.0f / 6)}));
    output(node("Mul", {x_, node("Div", {gate(), scalar(6)})}));
    output(node("Mul", {node("Mul", {x_, scalar(1.0f / 6)}), gate()}));
  }
  EXPECT_EQ(apply("hard_swish"), 8u);
  EXPECT_EQ(graph_.nodes.size(), 8u);
}

TEST_F(ActivationPassTest, NoHardSwishWithOtherNumbersOrUsers) {
  output(node("Div", {node("Mul", {x_, clip(node("Add", {x_, scalar(2)}), 0, 6)}), scalar(6)}));
  output(node("Div", {node("Mul", {x_, clip(node("Add", {x_, scalar(3)}), 0, 5)}), scalar(6)}));
  output(node("Div", {node("Mul", {x_, clip(node("Add", {x_, scalar(3)}), 0, 6)}), scalar(5)}));
  const ValueId seen = clip(node("Add", {x_, scalar(3)}), 0, 6);
  output(node("Div", {node("Mul", {x_, seen}), scalar(6)}));
  output(seen);
  EXPECT_EQ(apply("hard_swish"), 0u);
}

TEST_F(ActivationPassTest, NoHardSwishWhereTheFactorWidensTheShape) {
  const ValueId gate = clip(node("Add", {x_, scalar(3)}), 0, 6);
  output(node("Mul", {node("Mul", {x_, gate}), constant({1, 1, 1, 1}, {1.0f / 6})}));
  EXPECT_EQ(apply("hard_swish"), 0u);
}

TEST_F(ActivationPassTest, GeluInItsOrders) {
  output(node("Mul", {node("Mul", {x_, erf_plus_one()}), scalar(0.5f)}));
  output(node("Mul", {node("Mul", {x_, scalar(0.5f)}), erf_plus_one()}));
  output(node("Mul", {x_, node("Mul", {erf_plus_one(), scalar(0.5f)})}));
  output(node("Div", {node("Mul", {erf_plus_one(), x_}), scalar(2)}));
  const ValueId erf = node("Erf", {node("Mul", {x_, scalar(std::sqrt(0.5f))})});
  output(node("Mul", {scalar(0.5f), node("Mul", {x_, node("Add", {scalar(1), erf})})}));
  EXPECT_EQ(apply("gelu"), 5u);
  EXPECT_EQ(graph_.nodes.size(), 5u);
  EXPECT_EQ(activation(), "gelu");
}

TEST_F(ActivationPassTest, GeluByTanh) {
  const auto finish = [&](ValueId inner) {
    return node("Mul", {node("Mul", {x_, scalar(0.5f)}), node("Add", {node("Tanh", {inner}), scalar(1)})});
  };
  const float root = std::sqrt(2 / 3.14159265f);
  const ValueId cube = node("Mul", {node("Pow", {x_, scalar(3)}), scalar(0.044715f)});
  output(finish(node("Mul", {node("Add", {x_, cube}), scalar(root)})));
  const ValueId by_products = node("Mul", {scalar(0.044715f), node("Mul", {x_, node("Mul", {x_, x_})})});
  output(finish(node("Mul", {scalar(root), node("Add", {by_products, x_})})));
  const ValueId square = node("Mul", {node("Mul", {x_, scalar(0.044715f)}), x_});
  output(finish(node("Mul", {node("Mul", {x_, scalar(root)}), node("Add", {square, scalar(1)})})));
  EXPECT_EQ(apply("gelu", 1e-4), 3u);
  EXPECT_EQ(activation(), "gelu_tanh");
}

TEST_F(ActivationPassTest, NoGeluWithOtherNumbersOrUsers) {
  output(node("Mul", {node("Mul", {x_, erf_plus_one()}), scalar(0.25f)}));
  output(node("Mul", {node("Mul", {node("Relu", {x_}), erf_plus_one()}), scalar(0.5f)}));
  const ValueId seen = erf_plus_one();
  output(node("Mul", {node("Mul", {x_, seen}), scalar(0.5f)}));
  output(seen);
  EXPECT_EQ(apply("gelu"), 0u);
}

}  // namespace
}  // namespace sluice::engine
