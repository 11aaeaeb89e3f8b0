#include "ir/graph.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

Node make_node(const char* op, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  Node node;
  node.op = op;
  node.opset = 13;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

// x -> Relu -> a -> Neg -> b (output), and a -> Abs -> c, which nobody uses.
Graph make_graph() {
  Graph graph;
  const ValueId x = graph.add_value("x", {DType::kFloat, {2}}, true);
  const ValueId a = graph.add_value("a"), b = graph.add_value("b"), c = graph.add_value("c");
  graph.inputs = {x};
  graph.outputs = {b};
  graph.nodes = {make_node("Relu", {x}, {a}), make_node("Neg", {a}, {b}), make_node("Abs", {a}, {c})};
  return graph;
}

TEST(GraphTest, RemovesWhatNobodyUses) {
  Graph graph = make_graph();
  EXPECT_EQ(graph.remove_dead(), 1u);
  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[1].op, "Neg");
  EXPECT_EQ(graph.remove_dead(), 0u);
}

TEST(GraphTest, KeepsAnOutputEvenIfNodesUseIt) {
  Graph graph = make_graph();
  graph.outputs.push_back(graph.nodes[2].outputs[0]);
  EXPECT_EQ(graph.remove_dead(), 0u);
}

TEST(UsesTest, ASoleUserIsNoneForOutputsAndForValuesWithSeveralUsers) {
  Graph graph = make_graph();
  const ValueId x = graph.inputs[0], a = graph.nodes[0].outputs[0], b = graph.outputs[0];
  EXPECT_EQ(Uses(graph).sole_user(x), 0);
  EXPECT_EQ(Uses(graph).sole_user(a), -1);
  EXPECT_EQ(Uses(graph).sole_user(b), -1);
  graph.remove_dead();
  EXPECT_EQ(Uses(graph).sole_user(a), 1);
  graph.outputs.push_back(a);
  EXPECT_EQ(Uses(graph).sole_user(a), -1);
}

TEST(NodeTest, AttributesHaveDefaults) {
  Node node = make_node("Softmax", {}, {});
  EXPECT_EQ(node.get_int("axis", -1), -1);
  node.set("axis", std::int64_t{2});
  EXPECT_EQ(node.get_int("axis", -1), 2);
  node.set("axis", std::int64_t{3});
  EXPECT_EQ(node.get_int("axis", -1), 3);
  EXPECT_EQ(node.attributes.size(), 1u);
}

TEST(PrintTest, ShowsNodesWithShapesAndAttributes) {
  Graph graph = make_graph();
  graph.nodes[0].set("alpha", 0.5f);
  EXPECT_EQ(to_text(graph),
            "input %0:x float[2]\n"
            "%1:a = Relu(%0:x) alpha=0.5\n"
            "%2:b = Neg(%1:a)\n"
            "%3:c = Abs(%1:a)\n"
            "output %2:b\n");
}

}  // namespace
}  // namespace sluice::engine
