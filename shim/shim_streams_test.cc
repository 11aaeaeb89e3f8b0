// Streams, events and contexts that end, come again or change hands while the shim counts on them.
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "shim_test.h"

namespace sluice::shim {
namespace {

class StreamsTest : public ShimTest {
 protected:
  template <class Function>
  static Function shim_function(const char* name) {
    static void* const library = dlopen(SLUICE_SHIM, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function>(dlsym(library, name));
  }

  void SetUp() override {
    ShimTest::SetUp();
    below_ = add_other(kBelow);
    the_board().linger_ns.store(0);
  }

  bool holds() const { return self().active.load() == 1 && other(below_).gate.load() == own_bit(); }
  bool lets_go() const {
    return eventually([this] { return self().active.load() == 0 && other(below_).gate.load() == 0; });
  }
  int below() const { return below_; }

 private:
  int below_ = -1;
};

// Its thread's default stream, with work that nobody will ever wait for.
TEST_F(StreamsTest, AThreadThatEndedWithWorkInHandHoldsNobody) {
  std::thread([this] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    add_seven(shim().launch_per_thread, nullptr, word_of(0));
  }).join();
  EXPECT_TRUE(lets_go());
}

// More than the shim's table has room for.
TEST_F(StreamsTest, ThreadsThatEndedLeaveRoomForOthers) {
  constexpr int kThreads = 1100;
  const CUdeviceptr word = word_of(0);
  for (int i = 0; i < kThreads; ++i) {
    std::thread([this, word] {
      EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
      add_seven(shim().launch_per_thread, nullptr, word);
      EXPECT_EQ(shim().synchronize_per_thread(nullptr), CUDA_SUCCESS);
    }).join();
  }
  EXPECT_EQ(now(word), 7u * kThreads);
  CUstream late = nullptr;
  ASSERT_EQ(shim().stream_create(&late, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const std::uint64_t launches = self().counters.launches.load();
  spin(late, 1'000);
  EXPECT_EQ(self().counters.launches.load(), launches + 1);
  EXPECT_EQ(shim().stream_destroy(late), CUDA_SUCCESS);
}

TEST_F(StreamsTest, ALaunchIntoADestroyedStreamIsNotWaitedFor) {
  CUstream gone = nullptr;
  ASSERT_EQ(shim().stream_create(&gone, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(shim().stream_destroy(gone), CUDA_SUCCESS);
  void* params[] = {nullptr, nullptr};
  ASSERT_NE(shim().launch(increment(), 1, 1, 1, 1, 1, 1, 0, gone, params, nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(lets_go());
}

TEST_F(StreamsTest, AnEventRecordedAgainSaysNothingOfItsFirstStream) {
  const auto create = shim_function<decltype(&cuEventCreate)>("cuEventCreate");
  const auto record = shim_function<decltype(&cuEventRecord)>("cuEventRecord");
  const auto record_with_flags = shim_function<decltype(&cuEventRecordWithFlags)>("cuEventRecordWithFlags");
  const auto wait = shim_function<decltype(&cuEventSynchronize)>("cuEventSynchronize");
  CUevent event = nullptr;
  CUstream other_stream = nullptr;
  ASSERT_EQ(create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(shim().stream_create(&other_stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  begin_work();
  ASSERT_EQ(record(event, stream()), CUDA_SUCCESS);
  ASSERT_EQ(record_with_flags(event, other_stream, CU_EVENT_RECORD_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(wait(event), CUDA_SUCCESS);
  EXPECT_TRUE(holds()) << "the work on the first stream is not done";
  finish();
  EXPECT_TRUE(lets_go());
  EXPECT_EQ(shim().stream_destroy(other_stream), CUDA_SUCCESS);
}

TEST_F(StreamsTest, APrimaryContextThatLivesOnKeepsItsWork) {
  const auto release = shim_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxRelease_v2");
  CUcontext same = nullptr;
  ASSERT_EQ(shim().retain(&same, 0), CUDA_SUCCESS);
  ASSERT_EQ(same, context());
  begin_work();
  ASSERT_EQ(release(0), CUDA_SUCCESS);
  EXPECT_TRUE(holds()) << "only one of two references is gone";
  finish();
  EXPECT_TRUE(lets_go());
}

// It gets the place in the table of one that went while a thread waits for the context of both.
TEST_F(StreamsTest, AWaitForAContextCountsNothingForAStreamThatCameMeanwhile) {
  void* memory = nullptr;
  ASSERT_EQ(driver().host_alloc(&memory, sizeof(std::uint64_t), CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  auto* parking = new (memory) std::uint64_t(1);
  CUstream first = nullptr;
  ASSERT_EQ(shim().stream_create(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) spin(first, 100);
  ASSERT_EQ(shim().synchronize(first), CUDA_SUCCESS);
  begin_work();
  std::atomic<long> waiting{0};
  std::thread waiter([&] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    waiting = syscall(SYS_gettid);
    EXPECT_EQ(shim().synchronize_context(), CUDA_SUCCESS);
  });
  EXPECT_TRUE(eventually([&] {
    std::ifstream stat("/proc/self/task/" + std::to_string(waiting.load()) + "/stat");
    const std::string text(std::istreambuf_iterator<char>(stat), {});
    return text.find(") S ") != std::string::npos;  // asleep in the wait
  }));
  ASSERT_EQ(shim().stream_destroy(first), CUDA_SUCCESS);
  CUstream second = nullptr;
  ASSERT_EQ(shim().stream_create(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  spin(second, 100);
  EXPECT_EQ(shim().synchronize(second), CUDA_SUCCESS);
  finish();
  waiter.join();
  EXPECT_TRUE(lets_go());
  ASSERT_EQ(driver().wait_value(second, reinterpret_cast<CUdeviceptr>(parking), 0, CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  spin(second, 100);
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_TRUE(holds()) << "its own work is not done";
  std::atomic_ref<std::uint64_t>(*parking).store(0);
  EXPECT_TRUE(lets_go()) << "seen to end, though nobody waits";
  EXPECT_EQ(shim().stream_destroy(second), CUDA_SUCCESS);
}

// The slower of two threads that read the board's members left what it had seen first under the epoch of the other.
TEST_F(StreamsTest, ChangesOfPriorityInARowAreFollowedByManyThreads) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
      CUstream own = nullptr;
      EXPECT_EQ(shim().stream_create(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      while (!over.load()) {
        spin(own, 100);
        EXPECT_EQ(shim().synchronize(own), CUDA_SUCCESS);
      }
      EXPECT_EQ(shim().stream_destroy(own), CUDA_SUCCESS);
    });
  }
  for (int round = 0; round < 100; ++round) {
    job_of(below()).priority.store(kBelow);
    the_board().epoch.fetch_add(1);
    job_of(below()).priority.store(kAbove);
    the_board().epoch.fetch_add(1);
    const std::uint64_t gates = self().counters.gates.load();
    ASSERT_TRUE(eventually([&] { return self().counters.gates.load() > gates; })) << "round " << round;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  job_of(below()).priority.store(kBelow);
  the_board().epoch.fetch_add(1);
  EXPECT_TRUE(lets_go());
}

}  // namespace
}  // namespace sluice::shim
