// The public interface, from file to result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/engine.h"
#include "testing/count_allocations.h"
#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

using test::add_floats;
using test::add_node;
using test::Folder;
using test::make_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  // y = Reshape(Relu(x + w), Shape(x)), and z = x.
  onnx::ModelProto model() {
    auto model = make_model();
    add_floats(model, "w", {1, -2, 3, -4});
    add_node(model, "Add", {"x", "w"}, {"a"});
    add_node(model, "Relu", {"a"}, {"b"});
    add_node(model, "Shape", {"x"}, {"s"});
    add_node(model, "Reshape", {"b", "s"}, {"y"});
    *model.mutable_graph()->add_output() = model.graph().input(0);
    return model;
  }
  std::shared_ptr<Model> load(const onnx::ModelProto& proto, const Options& options = {}) {
    auto loaded = Model::load(folder_.write("m.onnx", proto.SerializeAsString()), options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? *loaded : nullptr;
  }
  static std::vector<float> floats(const Session& session, std::string_view name) {
    auto view = session.output(name);
    EXPECT_TRUE(view.ok()) << view.status().message();
    const auto* data = static_cast<const float*>(view->data);
    return {data, data + view->bytes / sizeof(float)};
  }
  Folder folder_;
};

TEST_F(SessionTest, ComputesForEachShape) {
  auto session = Session::create(load(model()));
  const std::vector<float> two = {0, 0, 0, 0, 5, 5, 5, 5}, one = {1, 1, 1, 1};
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE((*session)->set_input("x", DType::kFloat, {2, 4}, two.data()).ok());
    ASSERT_TRUE((*session)->run().ok());
    EXPECT_THAT(floats(**session, "y"), ElementsAre(1, 0, 3, 0, 6, 3, 8, 1));
    EXPECT_EQ(floats(**session, "x"), two);
    ASSERT_TRUE((*session)->set_input("x", DType::kFloat, {1, 4}, one.data()).ok());
    ASSERT_TRUE((*session)->run().ok());
    EXPECT_THAT(floats(**session, "y"), ElementsAre(2, 0, 4, 0));
  }
}

TEST_F(SessionTest, AllocatesNothingOnceCompiled) {
  auto session = Session::create(load(model()));
  const std::vector<float> data(8, 1.0f);
  const auto run = [&](std::int64_t batch) {
    const std::int64_t dims[] = {batch, 4};
    return (*session)->set_input("x", DType::kFloat, dims, data.data()).ok() && (*session)->run().ok();
  };
  ASSERT_TRUE(run(2) && run(2));
  const long before = test::allocation_count();
  ASSERT_TRUE(run(2) && run(2));
  EXPECT_EQ(test::allocation_count() - before, 0);
}

TEST_F(SessionTest, ValuesThatDecideShapesArePartOfTheProgram) {
  auto proto = make_model();
  auto* shape = proto.mutable_graph()->add_input();
  shape->set_name("shape");
  shape->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  shape->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(2);
  add_node(proto, "Reshape", {"x", "shape"}, {"y"});
  auto loaded = load(proto);
  EXPECT_FALSE(loaded->inputs()[0].decides_shapes);
  EXPECT_TRUE(loaded->inputs()[1].decides_shapes);
  auto session = Session::create(loaded);
  const std::vector<float> data(8, 1.0f);
  ASSERT_TRUE((*session)->set_input("x", DType::kFloat, {2, 4}, data.data()).ok());
  for (const std::vector<std::int64_t>& wanted : {std::vector<std::int64_t>{8, 1}, {-1, 2}, {8, 1}}) {
    ASSERT_TRUE((*session)->set_input("shape", DType::kInt64, {2}, wanted.data()).ok());
    ASSERT_TRUE((*session)->run().ok());
    EXPECT_EQ((*session)->output("y")->dims[1], wanted[1]);
  }
}

TEST_F(SessionTest, SaysWhatIsWrongWithInputsAndOutputs) {
  auto session = Session::create(load(model()));
  const float data[4] = {};
  EXPECT_EQ((*session)->run().code(), Code::kFailedPrecondition);
  EXPECT_EQ((*session)->output("y").status().code(), Code::kFailedPrecondition);
  EXPECT_EQ((*session)->output("q").status().code(), Code::kNotFound);
  EXPECT_EQ((*session)->set_input("q", DType::kFloat, {1, 4}, data).code(), Code::kNotFound);
  EXPECT_EQ((*session)->set_input("x", DType::kDouble, {1, 4}, data).code(), Code::kInvalidArgument);
  EXPECT_EQ((*session)->set_input("x", DType::kFloat, {1, 5}, data).code(), Code::kInvalidArgument);
  EXPECT_EQ((*session)->set_input("x", DType::kFloat, {1, 4, 1}, data).code(), Code::kInvalidArgument);
  EXPECT_EQ((*session)->set_input("x", DType::kFloat, {1, 4}, nullptr).code(), Code::kInvalidArgument);
}

TEST_F(SessionTest, AnIndexOutOfRangeIsAnErrorOfTheRun) {
  auto proto = make_model();
  auto* indices = proto.mutable_graph()->add_input();
  indices->set_name("i");
  indices->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  add_node(proto, "Gather", {"x", "i"}, {"y"});
  auto session = Session::create(load(proto));
  const float data[4] = {1, 2, 3, 4};
  std::int64_t index = 1;
  ASSERT_TRUE((*session)->set_input("x", DType::kFloat, {1, 4}, data).ok());
  ASSERT_TRUE((*session)->set_input("i", DType::kInt64, {1}, &index).ok());
  const Status status = (*session)->run();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("Gather 'n_Gather' (opset 13): an index is outside [-1, 1)"));
  index = -1;
  EXPECT_TRUE((*session)->run().ok());
}

TEST_F(SessionTest, TellsOfEachStep) {
  Options unfused;
  unfused.passes_off = {"all"};
  auto session = Session::create(load(model(), unfused));
  const std::vector<float> one = {1, 1, 1, 1};
  ASSERT_TRUE((*session)->set_input("x", DType::kFloat, {1, 4}, one.data()).ok());
  std::vector<std::string> ops;
  std::vector<float> sums;
  ASSERT_TRUE((*session)
                  ->run([&](const StepView& step) {
                    EXPECT_EQ(step.index, ops.size());
                    EXPECT_EQ(step.count, (*session)->operators_after());
                    ops.emplace_back(step.op);
                    if (step.results.size() == 1 && step.results[0].name == "a") {
                      const auto* data = static_cast<const float*>(step.results[0].tensor.data);
                      sums.assign(data, data + 4);
                    }
                  })
                  .ok());
  EXPECT_EQ(ops.size(), (*session)->operators_after());
  EXPECT_THAT(ops, ::testing::IsSupersetOf({"Add", "Relu"}));
  EXPECT_THAT(sums, ElementsAre(2, -1, 4, -3));
}

TEST_F(SessionTest, WritesToMemoryOfTheCaller) {
  auto session = Session::create(load(model()));
  const std::vector<float> one = {1, 1, 1, 1};
  std::vector<float> mine(4);
  ASSERT_TRUE((*session)->set_input("x", DType::kFloat, {1, 4}, one.data()).ok());
  ASSERT_TRUE((*session)->bind_output("y", mine.data(), 15).ok());
  const Status status = (*session)->run();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("output 'y' takes 16 bytes, and the memory bound to it has 15"));
  ASSERT_TRUE((*session)->bind_output("y", mine.data(), 16).ok());
  ASSERT_TRUE((*session)->run().ok());
  EXPECT_THAT(mine, ElementsAre(2, 0, 4, 0));
  EXPECT_EQ((*session)->output("y")->data, mine.data());
  ASSERT_TRUE((*session)->bind_output("y", nullptr, 0).ok());
  ASSERT_TRUE((*session)->run().ok());
  EXPECT_NE((*session)->output("y")->data, mine.data());
  EXPECT_EQ((*session)->bind_output("z", mine.data(), 16).code(), Code::kNotFound);
  EXPECT_EQ((*session)->bind_output("y", reinterpret_cast<char*>(mine.data()) + 1, 15).code(), Code::kInvalidArgument);
}

TEST_F(SessionTest, RefusesUnknownDevicesAndPasses) {
  const std::string path = folder_.write("m.onnx", model().SerializeAsString());
  Options device;
  device.device = "tpu";
  EXPECT_EQ(Model::load(path, device).status().code(), Code::kUnavailable);
  Options pass;
  pass.passes_off = {"no_such_pass"};
  EXPECT_EQ(Model::load(path, pass).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::engine
