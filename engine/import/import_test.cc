#include "import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

using test::add_floats;
using test::add_node;
using test::Folder;
using test::make_model;
using ::testing::HasSubstr;

class ImportTest : public ::testing::Test {
 protected:
  Result<Graph> import(const onnx::ModelProto& model) {
    return import_onnx(folder_.write("m.onnx", model.SerializeAsString()), Limits());
  }
  void expect_refused(const onnx::ModelProto& model, Code code, const char* text) {
    auto graph = import(model);
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.status().code(), code) << graph.status().message();
    EXPECT_THAT(graph.status().message(), HasSubstr(text));
  }
  Folder folder_;
};

TEST_F(ImportTest, ReadsInputsWithSymbolsNodesAndWeights) {
  auto model = make_model();
  add_floats(model, "w", {1, 2, 3, 4});
  add_node(model, "Add", {"x", "w"}, {"y"});
  auto graph = import(model);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_EQ(graph->input_specs.size(), 1u);
  EXPECT_EQ(graph->input_specs[0].dims, (Dims{-1, 4}));
  EXPECT_EQ(graph->input_specs[0].symbols, (std::vector<std::string>{"N", ""}));
  ASSERT_EQ(graph->nodes.size(), 1u);
  EXPECT_EQ(graph->nodes[0].opset, 13);
  EXPECT_EQ(graph->value(graph->nodes[0].inputs[1]).constant->as_double(3), 4.0);
}

TEST_F(ImportTest, LargeWeightsStayInTheFile) {
  auto model = make_model();
  std::vector<float> weights(4096);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(i);
  }
  add_floats(model, "w", weights);
  add_floats(model, "v", weights)->mutable_raw_data()->assign(weights.size() * sizeof(float), '\0');
  add_node(model, "Neg", {"x"}, {"y"});
  auto graph = import(model);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_EQ(graph->values[0].name, "w");
  EXPECT_EQ(graph->values[0].constant->as_double(4095), 4095.0);
  EXPECT_EQ(graph->values[1].constant->as_double(4095), 0.0);
  EXPECT_EQ(graph->values[0].constant->owner(), graph->values[1].constant->owner());  // the mapped file
}

TEST_F(ImportTest, ConstantNodesAreConstants) {
  auto model = make_model();
  auto* value = add_node(model, "Constant", {}, {"c"})->add_attribute();
  value->set_name("value_floats");
  value->set_type(onnx::AttributeProto::FLOATS);
  for (const float v : {1.f, 2.f, 3.f, 4.f}) {
    value->add_floats(v);
  }
  add_node(model, "Mul", {"x", "c"}, {"y"});
  auto graph = import(model);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->nodes.size(), 1u);
  EXPECT_EQ(graph->value(graph->nodes[0].inputs[1]).constant->as_double(2), 3.0);
}

TEST_F(ImportTest, RefusesVersions) {
  auto model = make_model();
  add_node(model, "Neg", {"x"}, {"y"});
  model.mutable_opset_import(0)->set_version(0);
  expect_refused(model, Code::kUnimplemented, "opset 0 is not supported (7 to 17 are)");
  model.mutable_opset_import(0)->set_version(18);
  expect_refused(model, Code::kUnimplemented, "opset 18");
  model.mutable_opset_import(0)->set_version(13);
  model.set_ir_version(99);
  expect_refused(model, Code::kUnimplemented, "IR version 99");
  model.set_ir_version(8);
  model.clear_opset_import();
  expect_refused(model, Code::kInvalidArgument, "names no version");
}

TEST_F(ImportTest, RefusesGraphsThatDoNotHoldTogether) {
  auto unknown = make_model();
  add_node(unknown, "Neg", {"nothing"}, {"y"});
  expect_refused(unknown, Code::kInvalidArgument, "'nothing'");
  auto twice = make_model();
  add_node(twice, "Neg", {"x"}, {"y"});
  add_node(twice, "Abs", {"x"}, {"y"});
  expect_refused(twice, Code::kInvalidArgument, "'y' is defined twice");
  auto late = make_model();
  add_node(late, "Neg", {"a"}, {"y"});
  add_node(late, "Abs", {"x"}, {"a"});
  expect_refused(late, Code::kInvalidArgument, "'a'");
  expect_refused(make_model(), Code::kInvalidArgument, "nothing computes the output 'y'");
  auto own = make_model();
  add_node(own, "FusedConv", {"x"}, {"y"})->set_domain("sluice");
  expect_refused(own, Code::kInvalidArgument, "files cannot use");
  auto attribute = make_model();
  auto* node = add_node(attribute, "LeakyRelu", {"x"}, {"y"});
  for (int i = 0; i < 2; ++i) {
    node->add_attribute()->set_name("alpha");
    node->mutable_attribute(i)->set_type(onnx::AttributeProto::FLOAT);
  }
  expect_refused(attribute, Code::kInvalidArgument, "twice");
}

TEST_F(ImportTest, RefusesWhatIsNoDenseTensor) {
  auto sequence = make_model();
  add_node(sequence, "Neg", {"x"}, {"y"});
  auto* type = sequence.mutable_graph()->mutable_input(0)->mutable_type();
  type->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
  expect_refused(sequence, Code::kUnimplemented, "'x' is no dense tensor");
  auto text = make_model();
  add_node(text, "Neg", {"x"}, {"y"});
  text.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::STRING);
  expect_refused(text, Code::kUnimplemented, "string");
}

TEST_F(ImportTest, RefusesControlFlowAndFunctions) {
  auto model = make_model();
  auto* attribute = add_node(model, "Loop", {"x"}, {"y"})->add_attribute();
  attribute->set_name("body");
  attribute->set_type(onnx::AttributeProto::GRAPH);
  attribute->mutable_g()->set_name("b");
  expect_refused(model, Code::kUnimplemented, "control flow");
  auto function = make_model();
  add_node(function, "Neg", {"x"}, {"y"});
  function.add_functions()->set_name("f");
  expect_refused(function, Code::kUnimplemented, "functions of its own");
}

}  // namespace
}  // namespace sluice::engine
