// The C interface, from file to result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "from_c.h"
#include "sluice.h"
#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CapiTest : public ::testing::Test {
 protected:
  // y = Relu(x + w).
  CapiTest() {
    auto proto = test::make_model();
    test::add_floats(proto, "w", {1, -2, 3, -4});
    test::add_node(proto, "Add", {"x", "w"}, {"a"});
    test::add_node(proto, "Relu", {"a"}, {"y"});
    path_ = folder_.write("m.onnx", proto.SerializeAsString());
  }
  void open() {
    ASSERT_EQ(sluice_model_load(path_.c_str(), nullptr, &model_), SLUICE_OK) << sluice_last_error();
    ASSERT_EQ(sluice_session_create(model_, &session_), SLUICE_OK) << sluice_last_error();
  }
  ~CapiTest() override {
    sluice_session_destroy(session_);
    sluice_model_release(model_);
  }
  int load(const sluice_model_options& options) {
    sluice_model* model = nullptr;
    const int code = sluice_model_load(path_.c_str(), &options, &model);
    EXPECT_EQ(model != nullptr, code == SLUICE_OK);
    sluice_model_release(model);
    return code;
  }

  test::Folder folder_;
  std::string path_;
  sluice_model* model_ = nullptr;
  sluice_session* session_ = nullptr;
  const std::int64_t one_row_[2] = {1, 4};
  const float ones_[4] = {1, 1, 1, 1};
};

TEST_F(CapiTest, RunsFromC) {
  const float x[8] = {0, 0, 0, 0, 5, 5, 5, 5};
  float y[8];
  ASSERT_EQ(run_from_c(path_.c_str(), x, 2, y), SLUICE_OK) << sluice_last_error();
  EXPECT_THAT(y, ElementsAre(1, 0, 3, 0, 6, 3, 8, 1));
  EXPECT_EQ(run_from_c((path_ + "x").c_str(), x, 2, y), SLUICE_NOT_FOUND);
}

TEST_F(CapiTest, TellsWhatTheModelTakes) {
  open();
  ASSERT_EQ(sluice_model_input_count(model_), 1u);
  ASSERT_EQ(sluice_model_output_count(model_), 1u);
  const char* name = nullptr;
  sluice_dtype dtype;
  std::size_t rank;
  const std::int64_t* dims;
  ASSERT_EQ(sluice_model_input(model_, 0, &name, &dtype, &rank, &dims), SLUICE_OK);
  EXPECT_STREQ(name, "x");
  EXPECT_EQ(dtype, SLUICE_FLOAT);
  ASSERT_EQ(rank, 2u);
  EXPECT_EQ(dims[0], -1);
  EXPECT_EQ(dims[1], 4);
  ASSERT_EQ(sluice_model_output(model_, 0, &name), SLUICE_OK);
  EXPECT_STREQ(name, "y");
  EXPECT_EQ(sluice_model_input(model_, 1, &name, nullptr, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(name, "y") << "a function that failed changes nothing";
  EXPECT_THAT(sluice_last_error(), HasSubstr("there is no input 1; the model has 1"));
}

TEST_F(CapiTest, KeepsBindingsBetweenRuns) {
  open();
  float x[4] = {1, 1, 1, 1};
  float y[4] = {};
  ASSERT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, one_row_, x), SLUICE_OK);
  ASSERT_EQ(sluice_session_bind_output(session_, "y", y, sizeof y), SLUICE_OK);
  ASSERT_EQ(sluice_session_run(session_), SLUICE_OK) << sluice_last_error();
  EXPECT_THAT(y, ElementsAre(2, 0, 4, 0));
  x[0] = 10;
  ASSERT_EQ(sluice_session_run(session_), SLUICE_OK);
  EXPECT_EQ(y[0], 11);
  const void* data = nullptr;
  ASSERT_EQ(sluice_session_output(session_, "y", nullptr, nullptr, nullptr, &data), SLUICE_OK);
  EXPECT_EQ(data, y);
}

TEST_F(CapiTest, RefusesWrongArgumentsAndGoesOn) {
  open();
  const void* data = nullptr;
  EXPECT_EQ(sluice_session_output(session_, "y", nullptr, nullptr, nullptr, &data), SLUICE_FAILED_PRECONDITION);
  EXPECT_EQ(sluice_session_run(session_), SLUICE_FAILED_PRECONDITION);
  EXPECT_THAT(sluice_last_error(), HasSubstr("'x' is not set"));
  const std::int64_t narrow[2] = {1, 3}, negative[2] = {-1, 4};
  EXPECT_EQ(sluice_session_set_input(session_, "z", SLUICE_FLOAT, 2, one_row_, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", SLUICE_INT32, 2, one_row_, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", static_cast<sluice_dtype>(257), 2, one_row_, ones_),
            SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, narrow, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, negative, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 1, one_row_, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(
      sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, one_row_, reinterpret_cast<const char*>(ones_) + 2),
      SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_last_error(), HasSubstr("not aligned to 4 bytes"));
  EXPECT_EQ(sluice_session_bind_output(session_, "z", nullptr, 0), SLUICE_INVALID_ARGUMENT);
  ASSERT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, one_row_, ones_), SLUICE_OK);
  EXPECT_EQ(sluice_session_run(session_), SLUICE_OK);
}

TEST_F(CapiTest, NullIsAnErrorNotACrash) {
  open();
  EXPECT_EQ(sluice_model_load(nullptr, nullptr, &model_), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_last_error(), "sluice_model_load: 'path' is NULL");
  EXPECT_EQ(sluice_model_load(path_.c_str(), nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_create(nullptr, &session_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_create(model_, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_run(nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, nullptr, SLUICE_FLOAT, 2, one_row_, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, nullptr, ones_), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_set_input(session_, "x", SLUICE_FLOAT, 2, one_row_, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_output(nullptr, "y", nullptr, nullptr, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_session_output(session_, nullptr, nullptr, nullptr, nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_model_output(model_, 0, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_model_input_count(nullptr), 0u);
  sluice_model_release(nullptr);
  sluice_session_destroy(nullptr);
}

TEST_F(CapiTest, ReadsOptionsOfOlderAndNewerCallers) {
  EXPECT_EQ(load({sizeof(sluice_model_options), "tpu", nullptr, 0, nullptr}), SLUICE_UNAVAILABLE);
  EXPECT_EQ(load({sizeof(sluice_model_options), nullptr, "fp8", 0, nullptr}), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(load({sizeof(sluice_model_options), nullptr, nullptr, -1, nullptr}), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(load({sizeof(sluice_model_options), nullptr, nullptr, 1, "all,"}), SLUICE_OK);
  EXPECT_EQ(load({sizeof(sluice_model_options), nullptr, nullptr, 1, "all,no_such_pass"}), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(load({0, nullptr, nullptr, 0, nullptr}), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(load({sizeof(std::size_t), "tpu", nullptr, 0, nullptr}), SLUICE_OK) << "fields behind its end do not count";
  struct {
    sluice_model_options known{sizeof(sluice_model_options) + sizeof(std::uint64_t), nullptr, nullptr, 1, nullptr};
    std::uint64_t unknown = 0;
  } newer;
  EXPECT_EQ(load(newer.known), SLUICE_OK);
  newer.unknown = 1;
  EXPECT_EQ(load(newer.known), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_last_error(), HasSubstr(sluice_version()));
}

}  // namespace
}  // namespace sluice::engine
