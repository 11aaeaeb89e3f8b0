#include "cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice::engine::cpu {
namespace {

struct Counts {
  std::array<std::atomic<int>, 500> done{};
  std::array<std::atomic<int>, 3> inside{};
  std::atomic<bool> shared{false};
  static void call(void* context, std::int64_t task, int thread) {
    auto& self = *static_cast<Counts*>(context);
    self.shared = self.shared || self.inside[static_cast<std::size_t>(thread)]++ != 0;
    ++self.done[static_cast<std::size_t>(task)];
    --self.inside[static_cast<std::size_t>(thread)];
  }
};

TEST(ThreadPoolTest, DoesEachTaskOnceLoopAfterLoop) {
  ThreadPool pool(3);
  for (int loop = 1; loop <= 300; ++loop) {
    Counts counts;
    const std::int64_t tasks = loop % 7 == 0 ? 500 : loop % 5;
    pool.run(tasks, Counts::call, &counts);
    for (std::int64_t i = 0; i < 500; ++i) {
      ASSERT_EQ(counts.done[static_cast<std::size_t>(i)], i < tasks ? 1 : 0);
    }
    ASSERT_FALSE(counts.shared);
  }
}

TEST(ThreadPoolTest, CallersFromManyThreads) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 100; ++loop) {
        Counts counts;
        pool.run(50, Counts::call, &counts);
        for (std::size_t k = 0; k < 50; ++k) {
          wrong += counts.done[k] == 1 ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPoolTest, IsCurrentWhileItsScopeLives) {
  ThreadPool pool(1);
  EXPECT_EQ(ThreadPool::current(), nullptr);
  {
    const ThreadPool::Scope scope(&pool);
    EXPECT_EQ(ThreadPool::current(), &pool);
  }
  EXPECT_EQ(ThreadPool::current(), nullptr);
}

}  // namespace
}  // namespace sluice::engine::cpu
