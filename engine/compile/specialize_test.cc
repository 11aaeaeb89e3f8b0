#include "compile/specialize.h"

#include <gtest/gtest.h>

#include "operators/registry.h"

namespace sluice::engine {
namespace {

class SpecializeTest : public ::testing::Test {
 protected:
  ValueId input(const char* name, DType dtype, Dims dims) {
    const ValueId id = graph_.add_value(name, {dtype, std::move(dims)}, true);
    graph_.inputs.push_back(id);
    return id;
  }
  ValueId ints(std::vector<std::int64_t> values) {
    auto tensor = Tensor::allocate(DType::kInt64, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor->mutable_as<std::int64_t>());
    return graph_.add_constant("c", std::move(*tensor));
  }
  ValueId node(const char* op, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {}) {
    Node made;
    made.op = op;
    made.opset = 13;
    made.inputs = std::move(inputs);
    made.attributes = std::move(attributes);
    made.outputs = {graph_.add_value(op)};
    graph_.nodes.push_back(std::move(made));
    return graph_.nodes.back().outputs[0];
  }
  Graph graph_;
};

TEST_F(SpecializeTest, FoldsShapeArithmetic) {
  // Reshape(x, Concat(Gather(Shape(x), [0]), [-1])), as PyTorch writes x.view(x.size(0), -1).
  const ValueId x = input("x", DType::kFloat, {2, 3, 4});
  const ValueId n = node("Gather", {node("Shape", {x}), ints({0})}, {{"axis", std::int64_t{0}}});
  const ValueId shape = node("Concat", {n, ints({-1})}, {{"axis", std::int64_t{0}}});
  graph_.outputs = {node("Reshape", {x, shape})};
  ASSERT_TRUE(bind_schemas(graph_).ok());
  EXPECT_EQ(find_shape_inputs(graph_), std::vector<bool>{false});
  const Status status = specialize(graph_, 1 << 20);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(graph_.nodes.size(), 1u);
  EXPECT_EQ(graph_.value(graph_.outputs[0]).type.dims, (Dims{2, 12}));
}

TEST_F(SpecializeTest, FindsInputsWhoseValuesDecideShapes) {
  const ValueId x = input("x", DType::kFloat, {2, 3}), shape = input("shape", DType::kInt64, {1});
  const ValueId other = input("other", DType::kInt64, {1});
  graph_.outputs = {node("Reshape", {x, node("Add", {shape, node("Size", {other})})})};
  ASSERT_TRUE(bind_schemas(graph_).ok());
  EXPECT_EQ(find_shape_inputs(graph_), (std::vector<bool>{false, true, false}));
}

TEST_F(SpecializeTest, RefusesShapesThatDependOnData) {
  const ValueId x = input("x", DType::kFloat, {2, 3}), shape = input("shape", DType::kInt64, {1});
  graph_.outputs = {node("Reshape", {x, shape})};
  ASSERT_TRUE(bind_schemas(graph_).ok());
  EXPECT_EQ(specialize(graph_, 1 << 20).code(), Code::kUnimplemented);
}

TEST_F(SpecializeTest, StopsAtTheLimitOfMemory) {
  const ValueId x = input("x", DType::kFloat, {1});
  graph_.outputs = {node("Expand", {x, ints({1024, 1024})})};
  ASSERT_TRUE(bind_schemas(graph_).ok());
  EXPECT_FALSE(specialize(graph_, 1 << 20).ok());
}

TEST_F(SpecializeTest, ADimensionOfZeroHidesNoneThatIsHuge) {
  const ValueId x = input("x", DType::kFloat, {0, 1});
  graph_.outputs = {node("Tile", {x, ints({1, 1 << 24})})};
  ASSERT_TRUE(bind_schemas(graph_).ok());
  EXPECT_NE(std::string(specialize(graph_, 1 << 20).message()).find("over the limit of memory"), std::string::npos);
}

TEST_F(SpecializeTest, FoldingConstantsKeepsWhatWouldGrow) {
  graph_.outputs = {node("Expand", {ints({5}), ints({1000, 1000})}), node("Neg", {ints({5})})};
  ASSERT_TRUE(bind_schemas(graph_).ok());
  auto folded = fold_constants(graph_, 1000);
  ASSERT_TRUE(folded.ok()) << folded.status().message();
  EXPECT_EQ(*folded, 1u);
  ASSERT_EQ(graph_.nodes.size(), 1u);
  EXPECT_EQ(graph_.nodes[0].op, "Expand");
  EXPECT_EQ(graph_.value(graph_.outputs[1]).constant->as_int(0), -5);
}

}  // namespace
}  // namespace sluice::engine
