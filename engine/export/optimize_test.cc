// From file to file: what optimize() keeps, and that the written model computes the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "sluice/engine.h"
#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

using test::add_floats;
using test::add_node;
using test::Folder;
using test::make_model;
using ::testing::HasSubstr;

class OptimizeTest : public ::testing::Test {
 protected:
  // y = Relu(MatMul(x, w) + b) of x: float[N, 4], with an Identity and a product of constants in between.
  onnx::ModelProto model() {
    auto proto = make_model();
    std::vector<float> w(16);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = std::sin(static_cast<float>(i));
    }
    auto* weights = add_floats(proto, "w", w);
    weights->clear_dims();
    weights->add_dims(4);
    weights->add_dims(4);
    add_floats(proto, "b", {1, 2, 3, 4});
    add_floats(proto, "two", {2});
    add_node(proto, "MatMul", {"x", "w"}, {"a"});
    add_node(proto, "Mul", {"b", "two"}, {"b2"});
    add_node(proto, "Identity", {"a"}, {"c"});
    add_node(proto, "Add", {"c", "b2"}, {"d"});
    add_node(proto, "Relu", {"d"}, {"y"});
    auto* entry = proto.add_metadata_props();
    entry->set_key("character");
    entry->set_value("abc");
    return proto;
  }
  OptimizeReport optimized(const onnx::ModelProto& proto, const OptimizeOptions& options = {}) {
    const std::string in = folder_.write("in.onnx", proto.SerializeAsString());
    auto report = optimize(in, out_, options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : OptimizeReport{};
  }
  onnx::ModelProto written() const {
    std::ifstream file(out_, std::ios::binary);
    onnx::ModelProto proto;
    EXPECT_TRUE(proto.ParseFromIstream(&file));
    return proto;
  }
  // y of a file for one row.
  std::vector<float> run(const std::string& path) {
    auto loaded = Model::load(path);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    auto session = Session::create(*loaded);
    const std::vector<float> x = {0.5f, -1, 2, 0.25f};
    EXPECT_TRUE((*session)->set_input("x", DType::kFloat, {1, 4}, x.data()).ok());
    const Status status = (*session)->run();
    EXPECT_TRUE(status.ok()) << status.message();
    auto view = (*session)->output("y");
    const auto* data = static_cast<const float*>(view->data);
    return {data, data + view->bytes / sizeof(float)};
  }
  void expect_same(float tolerance) {
    const auto expected = run(folder_.path("in.onnx").string()), actual = run(out_);
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(expected[i], actual[i], tolerance);
    }
  }

  Folder folder_;
  const std::string out_ = folder_.path("out.onnx").string();
};

TEST_F(OptimizeTest, FoldsAndKeepsWhatUsersSee) {
  const OptimizeReport report = optimized(model());
  EXPECT_EQ(report.operators_before, 5u);
  EXPECT_EQ(report.operators_after, 3u);
  EXPECT_EQ(report.opset, 13);
  const auto proto = written();
  EXPECT_EQ(proto.opset_import(0).version(), 13);
  EXPECT_EQ(proto.graph().input(0).name(), "x");
  EXPECT_EQ(proto.graph().output(0).name(), "y");
  EXPECT_EQ(proto.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "N");
  ASSERT_EQ(proto.metadata_props_size(), 1);
  EXPECT_EQ(proto.metadata_props(0).value(), "abc");
  expect_same(1e-6f);
  std::size_t changes = 0;
  for (const PassReport& pass : report.passes) {
    changes += pass.changes;
  }
  EXPECT_GE(changes, 2u);
}

TEST_F(OptimizeTest, WithAllPassesOffTheNodesStay) {
  const OptimizeReport report = optimized(model(), {.passes_off = {"all"}});
  EXPECT_EQ(report.operators_after, 5u);
  expect_same(0);
}

TEST_F(OptimizeTest, HalfPrecisionWithTheSameInterface) {
  const OptimizeReport report = optimized(model(), {.precision = Precision::kFp16, .fp32_weights = 0});
  EXPECT_EQ(report.fp16_operators, 3u);
  EXPECT_LT(report.bytes_after, report.bytes_before);
  const auto proto = written();
  EXPECT_EQ(proto.graph().input(0).type().tensor_type().elem_type(), onnx::TensorProto::FLOAT);
  EXPECT_EQ(proto.graph().output(0).type().tensor_type().elem_type(), onnx::TensorProto::FLOAT);
  expect_same(0.02f);
}

TEST_F(OptimizeTest, FixesDimensions) {
  optimized(model(), {.dims = {{"N", 1}}});
  EXPECT_EQ(written().graph().input(0).type().tensor_type().shape().dim(0).dim_value(), 1);
  EXPECT_EQ(written().graph().output(0).type().tensor_type().shape().dim(0).dim_value(), 1);
  expect_same(1e-6f);
}

TEST_F(OptimizeTest, RefusesADimensionThatIsNotThere) {
  const std::string in = folder_.write("in.onnx", model().SerializeAsString());
  const auto report = optimize(in, out_, {.dims = {{"M", 1}}});
  EXPECT_EQ(report.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("'N'"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(OptimizeTest, WeightsInAFileOfTheirOwn) {
  auto proto = make_model();
  add_floats(proto, "w", std::vector<float>(4096, 0.5f));
  add_node(proto, "Add", {"x", "w"}, {"wide"});
  auto* weights = proto.mutable_graph()->mutable_initializer(0);
  weights->clear_dims();
  weights->add_dims(1024);
  weights->add_dims(4);
  auto* axes = add_node(proto, "ReduceMax", {"wide"}, {"y"})->add_attribute();
  axes->set_name("axes");
  axes->set_type(onnx::AttributeProto::INTS);
  axes->add_ints(0);
  const OptimizeReport report = optimized(proto, {.external_data = true});
  EXPECT_EQ(report.external_data, "out.onnx.data");
  EXPECT_EQ(report.file_bytes, std::filesystem::file_size(out_) + std::filesystem::file_size(out_ + ".data"));
  EXPECT_GE(std::filesystem::file_size(out_ + ".data"), 4096 * sizeof(float));
  expect_same(1e-6f);
}

TEST_F(OptimizeTest, OutputsThatAreConstantsOrInputs) {
  auto proto = model();
  *proto.mutable_graph()->add_output() = proto.graph().input(0);
  auto* constant = proto.mutable_graph()->add_output();
  *constant = proto.graph().output(0);
  constant->set_name("b2");
  constant->mutable_type()->mutable_tensor_type()->clear_shape();
  optimized(proto);
  EXPECT_EQ(written().graph().output_size(), 3);
  expect_same(1e-6f);
}

TEST_F(OptimizeTest, LeavesNothingWhereItCannotWrite) {
  const std::string in = folder_.write("in.onnx", model().SerializeAsString());
  const auto report = optimize(in, folder_.path("no/such/out.onnx").string());
  EXPECT_EQ(report.status().code(), Code::kNotFound);
  ASSERT_EQ(::mkdir(out_.c_str(), 0700), 0);  // a folder in the way
  EXPECT_FALSE(optimize(in, out_).ok());
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path("").parent_path())) {
    ++files;
  }
  EXPECT_EQ(files, 2u);  // the input and that folder
}

TEST_F(OptimizeTest, MayReplaceItsInput) {
  const std::string in = folder_.write("in.onnx", model().SerializeAsString());
  const auto expected = run(in);
  ASSERT_TRUE(optimize(in, in).ok());
  EXPECT_EQ(run(in).size(), expected.size());
}

}  // namespace
}  // namespace sluice::engine
