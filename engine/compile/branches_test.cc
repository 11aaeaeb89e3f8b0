#include "compile/branches.h"

#include "sluice/engine.h"
#include "testing/model_builder.h"

namespace sluice::engine::test {
namespace {

// y = rate == 16000 ? x + w : -x, with `rate` an input and `w` an initializer outside.
onnx::ModelProto two_rates() {
  auto model = make_model();
  auto* rate = model.mutable_graph()->add_input();
  rate->set_name("rate");
  rate->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  rate->mutable_type()->mutable_tensor_type()->mutable_shape();
  add_floats(model, "w", {1, 2, 3, 4});
  auto* wanted = model.mutable_graph()->add_initializer();
  wanted->set_name("wanted");
  wanted->set_data_type(onnx::TensorProto::INT64);
  wanted->add_int64_data(16000);
  add_node(model, "Equal", {"rate", "wanted"}, {"is_wanted"});
  auto* node = add_node(model, "If", {"is_wanted"}, {"y"});
  for (const bool taken : {false, true}) {
    auto* attribute = node->add_attribute();
    attribute->set_name(taken ? "then_branch" : "else_branch");
    attribute->set_type(onnx::AttributeProto::GRAPH);
    auto* branch = attribute->mutable_g();
    branch->set_name("branch");
    auto* inner = branch->add_node();
    inner->set_op_type(taken ? "Add" : "Neg");
    inner->add_input("x");
    if (taken) {
      inner->add_input("w");
    }
    inner->add_output(taken ? "sum" : "negative");
    auto* output = branch->add_output();
    output->set_name(taken ? "sum" : "negative");
    output->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  }
  return model;
}

class BranchesTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<Model>> load(const onnx::ModelProto& model, const Options& options = {}) {
    return Model::load(folder_.write("m.onnx", model.SerializeAsString()), options);
  }
  Folder folder_;
};

std::vector<float> run(Session& session, std::int64_t rate) {
  const float x[] = {10, 20, 30, 40};
  EXPECT_TRUE(session.set_input("x", DType::kFloat, {1, 4}, x).ok());
  EXPECT_TRUE(session.set_input("rate", DType::kInt64, Dims{}, &rate).ok());
  const Status status = session.run();
  EXPECT_TRUE(status.ok()) << status.message();
  const auto y = session.output("y");
  if (!y.ok()) {
    ADD_FAILURE() << y.status().message();
    return {};
  }
  const auto* values = static_cast<const float*>(y->data);
  return {values, values + 4};
}

TEST_F(BranchesTest, TheConditionDecidesAtEachSignature) {
  for (const bool passes : {true, false}) {
    Options options;
    if (!passes) {
      options.passes_off = {"all"};
    }
    auto model = load(two_rates(), options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE((*model)->inputs()[1].decides_shapes);
    auto session = Session::create(*model);
    EXPECT_EQ(run(**session, 16000), (std::vector<float>{11, 22, 33, 44}));
    EXPECT_EQ(run(**session, 8000), (std::vector<float>{-10, -20, -30, -40}));
    EXPECT_EQ(run(**session, 16000), (std::vector<float>{11, 22, 33, 44}));
  }
}

TEST_F(BranchesTest, ABranchMayHoldAnotherAndYieldWhatIsOutside) {
  auto model = two_rates();
  auto* outer = model.mutable_graph()->mutable_node(1);
  auto* branch = outer->mutable_attribute(0)->mutable_g();  // else_branch
  const onnx::NodeProto nested = *outer;
  branch->clear_node();
  *branch->add_node() = nested;
  branch->mutable_node(0)->set_output(0, "negative");
  auto* innermost = branch->mutable_node(0)->mutable_attribute(0)->mutable_g();
  innermost->clear_node();
  innermost->mutable_output(0)->set_name("x");
  auto loaded = load(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  auto session = Session::create(*loaded);
  EXPECT_EQ(run(**session, 8000), (std::vector<float>{10, 20, 30, 40}));
  EXPECT_EQ(run(**session, 16000), (std::vector<float>{11, 22, 33, 44}));
}

TEST_F(BranchesTest, DamagedBranchesAreNamed) {
  const auto message = [&](const onnx::ModelProto& model) {
    auto loaded = load(model);
    return loaded.ok() ? std::string() : std::string(loaded.status().message());
  };
  auto lacking = two_rates();
  lacking.mutable_graph()->mutable_node(1)->mutable_attribute()->RemoveLast();
  EXPECT_NE(message(lacking).find("lacks its attribute 'then_branch'"), std::string::npos) << message(lacking);
  auto unknown = two_rates();
  unknown.mutable_graph()->mutable_node(1)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(0, "nobody");
  EXPECT_NE(message(unknown).find("'nobody'"), std::string::npos) << message(unknown);
  auto outputs = two_rates();
  *outputs.mutable_graph()->mutable_node(1)->mutable_attribute(0)->mutable_g()->add_output() =
      outputs.graph().node(1).attribute(0).g().output(0);
  EXPECT_NE(message(outputs).find("2 outputs instead of 1"), std::string::npos) << message(outputs);
  auto inputs = two_rates();
  inputs.mutable_graph()->mutable_node(1)->add_input("x");
  EXPECT_NE(message(inputs).find("instead of a condition"), std::string::npos) << message(inputs);
  auto body = two_rates();
  body.mutable_graph()->mutable_node(1)->mutable_attribute(0)->set_name("body");
  EXPECT_NE(message(body).find("'body' is not supported"), std::string::npos) << message(body);
}

}  // namespace
}  // namespace sluice::engine::test
