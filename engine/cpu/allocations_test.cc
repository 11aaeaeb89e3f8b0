// A program that has run once allocates nothing when it runs again, whichever kernels it is made of.
#include "testing/count_allocations.h"
#include "testing/graph_fixture.h"

namespace sluice::engine::cpu {
namespace {

class AllocationsTest : public test::GraphFixture {
 protected:
  void expect_none(std::size_t steps) {
    ASSERT_TRUE(bind_schemas(graph_).ok());
    ASSERT_TRUE(specialize(graph_, 1u << 30).ok());
    PassContext context;
    context.device = "cpu";
    Status status = run_passes(graph_, Pass::Stage::kProgram, context, {}, false);
    ASSERT_TRUE(status.ok()) << status.message();
    PackedWeights packed;
    auto program = (*open_device("cpu", 2))->compile(graph_, packed);
    ASSERT_TRUE(program.ok()) << program.status().message();
    EXPECT_GE((*program)->info().steps.size(), steps);
    for (const StepInfo& step : (*program)->info().steps) {
      EXPECT_NE(step.implementation, "reference") << step.op;
    }
    std::vector<Tensor> tensors;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const ValueId id : graph_.inputs) {
      tensors.push_back(*Tensor::allocate(DType::kFloat, graph_.value(id).type.dims));
      inputs.push_back(tensors.back().data());
    }
    for (const ValueId id : graph_.outputs) {
      tensors.push_back(*Tensor::allocate(DType::kFloat, graph_.value(id).type.dims));
      outputs.push_back(tensors.back().mutable_data());
    }
    ASSERT_TRUE((*program)->run(inputs, outputs, nullptr).ok());
    const long before = test::allocation_count();
    bool ok = true;
    for (int i = 0; i < 3; ++i) {
      ok = (*program)->run(inputs, outputs, nullptr).ok() && ok;
    }
    EXPECT_EQ(test::allocation_count() - before, 0);
    EXPECT_TRUE(ok);
  }
};

TEST_F(AllocationsTest, Convolutions) {
  ValueId x = node("Conv", {input("x", {2, 3, 40, 40}), weights({16, 3, 3, 3}), weights({16})});
  x = node("Sigmoid", {x});
  x = node("Conv", {x, weights({16, 1, 3, 3})}, {{"group", std::int64_t{16}}});
  x = node("MaxPool", {x}, {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})});
  x = node("Conv", {x, weights({32, 16, 3, 3})}, {ints_attribute("pads", {1, 1, 1, 1})});
  const ValueId pooled = node("GlobalAveragePool", {x});
  output(node("Mul", {x, node("Sigmoid", {pooled})}));
  expect_none(7);
}

TEST_F(AllocationsTest, Transformers) {
  opset_ = 17;
  const ValueId x = input("x", {2, 33, 64});
  const ValueId normed = node("LayerNormalization", {x, weights({64}), weights({64})});
  const ValueId wide = node("MatMul", {normed, weights({64, 256})});
  const ValueId scores = node("Softmax", {node("MatMul", {wide, input("y", {2, 256, 40})})});
  output(node("Tanh", {scores}));
  expect_none(4);
}

}  // namespace
}  // namespace sluice::engine::cpu
