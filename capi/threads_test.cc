// Many sessions of one model, each on a thread of its own, while others load and release it.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sluice.h"
#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

constexpr int kThreads = 4;
constexpr int kRuns = 25;

class ThreadsTest : public ::testing::Test {
 protected:
  // y = Gemm(x, w).
  ThreadsTest() {
    auto proto = test::make_model();
    auto* w = test::add_floats(proto, "w", {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4});
    w->clear_dims();
    w->add_dims(4);
    w->add_dims(4);
    test::add_node(proto, "Mul", {"x", "x"}, {"squares"});
    test::add_node(proto, "MatMul", {"squares", "w"}, {"y"});
    path_ = folder_.write("m.onnx", proto.SerializeAsString());
    options_.threads = 2;
  }
  // Wrong results and failed calls of one session, with another shape every few runs.
  int errors_of_a_session(sluice_model* model, float value) const {
    sluice_session* session = nullptr;
    if (sluice_session_create(model, &session) != SLUICE_OK) return 1;
    int errors = 0;
    for (int run = 0; run < kRuns; ++run) {
      const std::int64_t dims[] = {1 + run / 10, 4};
      const std::vector<float> x(static_cast<std::size_t>(dims[0] * 4), value);
      const void* data = nullptr;
      if (sluice_session_set_input(session, "x", SLUICE_FLOAT, 2, dims, x.data()) != SLUICE_OK ||
          sluice_session_run(session) != SLUICE_OK ||
          sluice_session_output(session, "y", nullptr, nullptr, nullptr, &data) != SLUICE_OK) {
        ++errors;
        continue;
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        errors += static_cast<const float*>(data)[i] != value * value * static_cast<float>(i % 4 + 1);
      }
    }
    sluice_session_destroy(session);
    return errors;
  }

  test::Folder folder_;
  std::string path_;
  sluice_model_options options_ = {sizeof options_, nullptr, nullptr, 0, nullptr};
};

TEST_F(ThreadsTest, SessionsOfOneModel) {
  sluice_model* model = nullptr;
  ASSERT_EQ(sluice_model_load(path_.c_str(), &options_, &model), SLUICE_OK) << sluice_last_error();
  std::atomic<int> errors = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { errors += errors_of_a_session(model, static_cast<float>(i + 1)); });
  }
  for (std::thread& thread : threads) thread.join();
  sluice_model_release(model);
  EXPECT_EQ(errors, 0);
}

TEST_F(ThreadsTest, ModelsLoadAndGoAtTheSameTime) {
  std::atomic<int> errors = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      sluice_model* model = nullptr;
      if (sluice_model_load(path_.c_str(), &options_, &model) != SLUICE_OK) {
        ++errors;
        return;
      }
      errors += errors_of_a_session(model, static_cast<float>(i + 1));
      sluice_model_release(model);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
}

TEST_F(ThreadsTest, EachThreadHasItsOwnLastError) {
  ASSERT_EQ(sluice_model_load(nullptr, &options_, nullptr), SLUICE_INVALID_ARGUMENT);
  const std::string mine = sluice_last_error();
  std::string before, after;
  std::thread([&] {
    before = sluice_last_error();
    sluice_session_run(nullptr);
    after = sluice_last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_NE(after, mine);
  EXPECT_EQ(sluice_last_error(), mine);
}

}  // namespace
}  // namespace sluice::engine
