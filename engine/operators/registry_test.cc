#include "operators/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

// One node with inputs of the given types.
struct OneNode {
  OneNode(const char* op, int opset, std::initializer_list<DType> inputs, int outputs = 1) {
    node.op = op;
    node.name = "n1";
    node.opset = opset;
    for (const DType dtype : inputs) {
      node.inputs.push_back(graph.add_value("in", {dtype, {}}));
    }
    for (int i = 0; i < outputs; ++i) {
      node.outputs.push_back(graph.add_value("out"));
    }
  }
  DType output_type() const { return graph.value(node.outputs[0]).type.dtype; }
  Graph graph;
  Node node;
};

TEST(RegistryTest, BindsTypesFromInputsAndAttributes) {
  OneNode add("Add", 13, {DType::kInt32, DType::kInt32});
  ASSERT_TRUE(bind_schema(add.graph, add.node).ok());
  EXPECT_EQ(add.output_type(), DType::kInt32);
  OneNode equal("Equal", 13, {DType::kFloat, DType::kFloat});
  ASSERT_TRUE(bind_schema(equal.graph, equal.node).ok());
  EXPECT_EQ(equal.output_type(), DType::kBool);
  OneNode cast("Cast", 13, {DType::kFloat});
  cast.node.set("to", std::int64_t{10});
  ASSERT_TRUE(bind_schema(cast.graph, cast.node).ok());
  EXPECT_EQ(cast.output_type(), DType::kFloat16);
}

TEST(RegistryTest, NamesOperatorNodeOpsetAndWhatToDo) {
  OneNode node("NoSuchOperator", 13, {});
  const Status status = bind_schema(node.graph, node.node);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_STREQ(status.message(),
               "NoSuchOperator 'n1' (opset 13): the operator is not supported; export the model without it");
}

TEST(RegistryTest, RefusesAttributesThatTheSchemaDoesNotListForThatOpset) {
  OneNode older("Reshape", 13, {DType::kFloat, DType::kInt64});
  older.node.set("allowzero", std::int64_t{1});
  const Status status = bind_schema(older.graph, older.node);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("'allowzero'"));
  OneNode newer("Reshape", 14, {DType::kFloat, DType::kInt64});
  newer.node.set("allowzero", std::int64_t{1});
  EXPECT_TRUE(bind_schema(newer.graph, newer.node).ok());
}

TEST(RegistryTest, RefusesAttributesOfAnotherKindAndMissingOnes) {
  OneNode kind("Concat", 13, {DType::kFloat});
  kind.node.set("axis", 1.0f);
  EXPECT_EQ(bind_schema(kind.graph, kind.node).code(), Code::kInvalidArgument);
  OneNode missing("Concat", 13, {DType::kFloat});
  EXPECT_EQ(bind_schema(missing.graph, missing.node).code(), Code::kInvalidArgument);
}

TEST(RegistryTest, RefusesTypes) {
  OneNode unlisted("Sqrt", 13, {DType::kInt32});
  EXPECT_EQ(bind_schema(unlisted.graph, unlisted.node).code(), Code::kUnimplemented);
  OneNode mixed("Add", 13, {DType::kInt32, DType::kFloat});
  EXPECT_EQ(bind_schema(mixed.graph, mixed.node).code(), Code::kInvalidArgument);
  OneNode contradicted("Add", 13, {DType::kFloat, DType::kFloat});
  contradicted.graph.value(contradicted.node.outputs[0]).type.dtype = DType::kDouble;
  EXPECT_EQ(bind_schema(contradicted.graph, contradicted.node).code(), Code::kInvalidArgument);
}

TEST(RegistryTest, RefusesArity) {
  OneNode few("Add", 13, {DType::kFloat});
  EXPECT_EQ(bind_schema(few.graph, few.node).code(), Code::kInvalidArgument);
  OneNode many("Add", 13, {DType::kFloat, DType::kFloat, DType::kFloat});
  EXPECT_EQ(bind_schema(many.graph, many.node).code(), Code::kUnimplemented);
  OneNode none("Concat", 13, {});
  none.node.set("axis", std::int64_t{0});
  EXPECT_EQ(bind_schema(none.graph, none.node).code(), Code::kInvalidArgument);
  OneNode outputs("Add", 13, {DType::kFloat, DType::kFloat}, 2);
  EXPECT_EQ(bind_schema(outputs.graph, outputs.node).code(), Code::kUnimplemented);
  OneNode left_out("Add", 13, {DType::kFloat, DType::kFloat});
  left_out.node.inputs[1] = kNoValue;
  EXPECT_EQ(bind_schema(left_out.graph, left_out.node).code(), Code::kInvalidArgument);
}

TEST(RegistryTest, OlderOpsetsHaveWhatOpset7TookOver) {
  OneNode same("Relu", 6, {DType::kFloat});
  EXPECT_TRUE(bind_schema(same.graph, same.node).ok());
  OneNode changed("PRelu", 6, {DType::kFloat, DType::kFloat});
  EXPECT_EQ(bind_schema(changed.graph, changed.node).code(), Code::kUnimplemented);
  OneNode newer("Relu", 18, {DType::kFloat});
  EXPECT_EQ(bind_schema(newer.graph, newer.node).code(), Code::kUnimplemented);
  OneNode broadcast("Add", 6, {DType::kFloat, DType::kFloat});
  broadcast.node.set("broadcast", std::int64_t{1});
  EXPECT_EQ(bind_schema(broadcast.graph, broadcast.node).code(), Code::kUnimplemented);
  EXPECT_NE(Registry::get().find(kOwnDomain, "FusedConv", 6), nullptr);
}

}  // namespace
}  // namespace sluice::engine
