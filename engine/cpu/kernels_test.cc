// The CPU's own kernels against the reference kernels.
#include "cpu/kernels.h"

#include "testing/graph_fixture.h"

namespace sluice::engine::cpu {
namespace {

class KernelsTest : public test::GraphFixture {
 protected:
  // What stands in the graph, by both; and that the CPU took each node of `op` itself.
  void expect_reference(const char* op, double tolerance = 1e-5) {
    Status status = bind_schemas(graph_);
    ASSERT_TRUE(status.ok()) << status.message();
    expect_same(graph_, graph_, tolerance);
    Graph graph = graph_;
    ASSERT_TRUE(specialize(graph, 1u << 30).ok());
    PackedWeights packed;
    auto program = (*open_device("cpu", 2))->compile(graph, packed);
    ASSERT_TRUE(program.ok()) << program.status().message();
    for (const StepInfo& step : (*program)->info().steps) {
      EXPECT_TRUE(step.op != op || step.implementation != "reference") << to_text(graph);
    }
    graph_ = {};
  }
  ValueId own(const char* op, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {}) {
    const ValueId made = node(op, std::move(inputs), std::move(attributes));
    graph_.nodes.back().domain = kOwnDomain;
    return made;
  }
  static Attribute text(const char* name, const char* value) { return {name, std::string(value)}; }
  static Attribute number(const char* name, std::int64_t value) { return {name, value}; }
};

TEST_F(KernelsTest, ProductsOfAllSizesWithAllTheirParts) {
  for (const auto& [m, k, n] :
       {std::array{1, 1, 1}, {5, 7, 9}, {6, 16, 16}, {13, 40, 33}, {1, 64, 250}, {70, 130, 65}}) {
    for (const bool constant_weights : {true, false}) {
      for (const std::int64_t transposed : {0, 1}) {
        const ValueId a = input("a", {2, m, k});
        const Dims shape = transposed != 0 ? Dims{n, k} : Dims{k, n};
        const ValueId b = constant_weights ? weights(shape) : input("b", shape);
        const ValueId r = input("r", {2, m, n});
        output(own("FusedMatMul", {a, b, weights({n}), r},
                   {number("transB", transposed), {"scale", 0.5f}, text("activation", "gelu")}));
        expect_reference("FusedMatMul");
      }
    }
  }
}

TEST_F(KernelsTest, ProductsOfBatches) {
  for (const Dims& b : {Dims{2, 3, 10, 20}, Dims{1, 3, 10, 20}, Dims{10, 20}}) {
    output(node("MatMul", {input("a", {2, 3, 5, 10}), input("b", b)}));
    expect_reference("MatMul");
  }
  output(node("MatMul", {input("a", {1, 9, 10}), weights({4, 10, 20})}));
  expect_reference("MatMul");
}

TEST_F(KernelsTest, GemmWithEachKindOfC) {
  for (const Dims& c : {Dims{20}, Dims{1, 20}, Dims{7, 20}}) {
    for (const bool constant_c : {true, false}) {
      const ValueId a = input("a", {7, 30}), b = weights({20, 30});
      output(node("Gemm", {a, b, constant_c ? weights(c) : input("c", c)}, {number("transB", 1), {"alpha", 0.25f}}));
      expect_reference("Gemm");
    }
  }
  output(node("Gemm", {input("a", {7, 30}), weights({30, 20}), input("c", {20})}, {{"beta", 3.0f}}));
  expect_reference("Gemm");
}

TEST_F(KernelsTest, ActivationsOnAnyLength) {
  for (const char* name : {"relu", "leaky_relu", "clip", "elu", "sigmoid", "hard_sigmoid", "hard_swish", "silu", "gelu",
                           "gelu_tanh", "tanh", "none"}) {
    for (const std::int64_t count : {1, 8, 77, 20000}) {
      output(own("FusedActivation", {input("x", {count})}, {text("activation", name)}));
      expect_reference("FusedActivation", 1e-6);
    }
  }
}

TEST_F(KernelsTest, ElementwiseBroadcasts) {
  const std::vector<std::pair<Dims, Dims>> shapes = {{{3, 5, 7}, {3, 5, 7}},
                                                     {{3, 5, 7}, {7}},
                                                     {{3, 5, 7}, {3, 1, 7}},
                                                     {{3, 5, 7}, {5, 1}},
                                                     {{3, 5, 7}, {}},
                                                     {{2, 3, 30, 8}, {3, 1, 8}},
                                                     {{2, 3, 5, 6, 8}, {2, 3, 1, 1, 8}},
                                                     {{4000}, {1}},
                                                     {{1, 9, 1}, {4, 1, 5}}};
  for (const auto& [a, b] : shapes) {
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Max", "Min"}) {
      output(node(op, {input("a", a), input("b", b)}));
      expect_reference(op);
      output(node(op, {input("b", b), input("a", a)}));
      expect_reference("");
    }
  }
}

TEST_F(KernelsTest, ChainsOfSteps) {
  const ValueId x = input("x", {4, 600}), y = input("y", {4, 1}), z = input("z", {600});
  output(own("FusedElementwise", {x, y, z},
             {{"steps", std::vector<std::string>{"mul i0 i1", "add s0 0.5", "sub 1 s1", "max s2 i2", "exp s0",
                                                 "div s3 s4", "clip s5 -0.5 2", "hard_swish s6 0.1666667 0.5"}}}));
  expect_reference("FusedElementwise");
}

TEST_F(KernelsTest, UnaryOperators) {
  for (const char* op :
       {"Abs", "Ceil", "Erf", "Exp", "Floor", "Neg", "Round", "Relu", "Sigmoid", "HardSigmoid", "Tanh"}) {
    output(node(op, {input("x", {3, 37})}));
    expect_reference(op, 1e-6);
  }
  output(node("Clip", {input("x", {3, 37}), scalar(-0.5f), scalar(1)}));
  expect_reference("Clip");
}

TEST_F(KernelsTest, SoftmaxAlongEachAxis) {
  for (const int opset : {12, 13}) {
    opset_ = opset;
    for (const std::int64_t axis : {0, 1, 2, -1}) {
      output(node("Softmax", {input("x", {3, 16, 75})}, {number("axis", axis)}));
      expect_reference("Softmax");
    }
  }
}

TEST_F(KernelsTest, LayerNormalization) {
  opset_ = 17;
  for (const std::int64_t count : {1, 8, 30, 768}) {
    output(node("LayerNormalization", {input("x", {2, 5, count}), weights({count}), weights({count})}));
    expect_reference("LayerNormalization");
    output(node("LayerNormalization", {input("x", {2, 5, count}), weights({5, count})}, {number("axis", 1)}));
    expect_reference("LayerNormalization");
  }
}

TEST_F(KernelsTest, AttentionOfPartsOfOneTensorAndWithMasks) {
  const ValueId qkv = input("qkv", {2, 19, 3 * 2 * 20});
  output(own("FusedAttention", {qkv, qkv, qkv},
             {number("heads", 2), number("head_size", 20), ints_attribute("offsets", {0, 40, 80}), {"scale", 0.3f}}));
  expect_reference("FusedAttention");
  for (const Dims& mask : {Dims{2, 1, 1, 11}, Dims{19, 11}, Dims{2, 4, 19, 11}}) {
    output(own("FusedAttention",
               {input("q", {2, 19, 32}), input("k", {2, 11, 32}), input("v", {2, 11, 32}), input("m", mask)},
               {number("heads", 4), number("head_size", 8)}));
    expect_reference("FusedAttention");
  }
}

TEST_F(KernelsTest, ConvolutionsOfOnePixel) {
  output(node("Conv", {input("x", {3, 20, 1, 1}), weights({10, 20, 1, 1}), weights({10})}));
  expect_reference("Conv");
}

TEST_F(KernelsTest, ConvolutionsOfRows) {
  struct Case {
    Dims x, w;
    std::vector<Attribute> attributes;
  };
  const std::vector<Case> cases = {
      {{1, 1, 640}, {258, 1, 256}, {ints_attribute("strides", {128})}},
      {{2, 13, 4}, {20, 13, 3}, {ints_attribute("pads", {1, 1}), ints_attribute("strides", {2})}},
      {{1, 6, 50}, {9, 6, 5}, {ints_attribute("dilations", {3}), ints_attribute("pads", {4, 7})}},
      {{2, 48, 12, 17}, {12, 48, 1, 1}, {}},
      {{1, 10, 9, 21}, {7, 10, 3, 2}, {ints_attribute("pads", {1, 0, 2, 3}), ints_attribute("strides", {2, 1})}},
      {{2, 12, 7, 20}, {18, 4, 3, 3}, {ints_attribute("pads", {1, 1, 1, 1}), number("group", 3)}},
      {{1, 3, 4, 5}, {6, 1, 3, 3}, {{"auto_pad", std::string("SAME_LOWER")}, number("group", 3)}},
      {{1, 8, 33, 34}, {5, 8, 3, 3}, {ints_attribute("dilations", {2, 2}), ints_attribute("pads", {2, 2, 2, 2})}},
  };
  for (const Case& at : cases) {
    output(node("Conv", {input("x", at.x), weights(at.w)}, at.attributes));
    expect_reference("Conv");
    output(node("Conv", {input("x", at.x), input("w", at.w), weights({at.w[0]})}, at.attributes));
    expect_reference("Conv");
  }
  const ValueId x = input("x", {2, 6, 9});
  output(own("FusedConv", {x, weights({6, 6, 3}), weights({6}), x},
             {ints_attribute("pads", {1, 1}), text("activation", "silu")}));
  expect_reference("FusedConv");
}

TEST_F(KernelsTest, Transpositions) {
  const std::vector<std::pair<Dims, std::vector<std::int64_t>>> cases = {
      {{1, 19, 33, 1}, {0, 2, 1, 3}}, {{3, 16, 24}, {0, 2, 1}}, {{2, 5, 3, 9, 10}, {2, 0, 3, 1, 4}},
      {{4, 7, 8, 9}, {3, 2, 1, 0}},   {{6, 5, 4}, {0, 1, 2}},   {{70, 65}, {1, 0}},
      {{4, 3, 5, 2}, {1, 0, 3, 2}},   {{1, 1}, {1, 0}}};
  for (const auto& [dims, permutation] : cases) {
    output(node("Transpose", {input("x", dims)}, {ints_attribute("perm", permutation)}));
    expect_reference("Transpose", 1e-30);
  }
}

TEST_F(KernelsTest, TransposedConvolutions) {
  struct Case {
    Dims x, w;
    std::vector<Attribute> attributes;
  };
  const std::vector<Case> cases = {
      {{1, 24, 9, 12}, {24, 24, 2, 2}, {ints_attribute("strides", {2, 2})}},
      {{2, 5, 7, 6}, {5, 1, 2, 2}, {ints_attribute("strides", {3, 2})}},
      {{2, 7, 8, 9}, {7, 10, 4, 4}, {ints_attribute("strides", {2, 2}), ints_attribute("pads", {1, 1, 1, 1})}},
      {{1, 6, 5, 20}, {6, 2, 3, 3}, {ints_attribute("dilations", {2, 1}), number("group", 3)}},
      {{1, 3, 30}, {3, 4, 5}, {ints_attribute("strides", {2}), ints_attribute("output_padding", {1})}},
      {{1, 3, 5, 5}, {3, 9, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}, ints_attribute("strides", {2, 2})}},
  };
  for (const Case& at : cases) {
    output(node("ConvTranspose", {input("x", at.x), weights(at.w)}, at.attributes));
    expect_reference("ConvTranspose");
  }
  output(node("ConvTranspose", {input("x", {1, 6, 5, 8}), weights({6, 4, 3, 3}), weights({4})}));
  expect_reference("ConvTranspose");
}

}  // namespace
}  // namespace sluice::engine::cpu
