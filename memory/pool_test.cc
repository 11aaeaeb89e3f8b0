// The pool on the emulator, which orders work in streams as a card does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "sluice/driver.h"
#include "sluice/memory.h"

namespace sluice::memory {
namespace {

using ::testing::HasSubstr;
constexpr std::uint64_t kMiB = 1 << 20;

class PoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory() = (std::filesystem::temp_directory_path() / "sluice-pool-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(directory().data()), nullptr);
    setenv("SLUICE_RUNTIME_DIR", directory().c_str(), 1);
    setenv("SLUICE_DRIVER", SLUICE_EMULATOR, 1);
    Result<void*> library = driver::open_process_library();
    ASSERT_TRUE(library.ok()) << library.status().message();
    handle() = *library;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory()); }

  void SetUp() override {
    CUcontext context = nullptr;
    ASSERT_EQ(call<decltype(&cuInit)>("cuInit")(0), CUDA_SUCCESS);
    ASSERT_EQ(call<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
    context_ = context;
    a_ = stream();
    b_ = stream();
  }
  void TearDown() override {
    for (const auto& gate : gates_) gate->store(0);
    pools_.clear();
    EXPECT_EQ(call<decltype(&cuCtxSynchronize)>("cuCtxSynchronize")(), CUDA_SUCCESS);
  }

  template <class F>
  static F call(const char* name) {
    F function = driver::symbol<F>(handle(), name);
    EXPECT_NE(function, nullptr) << name;
    return function;
  }
  static CUstream stream() {
    CUstream out = nullptr;
    EXPECT_EQ(call<decltype(&cuStreamCreate)>("cuStreamCreate")(&out, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return out;
  }
  // Stays until the gates are open: a pool's end waits for the device.
  Pool* pool(std::uint64_t bytes, bool exportable = false) {
    PoolOptions options;
    options.capacity_bytes = bytes;
    options.exportable = exportable;
    Result<std::unique_ptr<Pool>> made = Pool::create(options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return pools_.emplace_back(std::move(*made)).get();
  }
  // The stream stands still until the word is 0.
  std::atomic<std::uint64_t>* hold(CUstream stream) {
    void* at = nullptr;
    EXPECT_EQ(call<decltype(&cuMemHostAlloc)>("cuMemHostAlloc")(&at, 8, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    gates_.push_back(new (at) std::atomic<std::uint64_t>(1));
    EXPECT_EQ(call<decltype(&cuStreamWaitValue64)>("cuStreamWaitValue64_v2")(stream, reinterpret_cast<CUdeviceptr>(at),
                                                                             0, CU_STREAM_WAIT_VALUE_EQ),
              CUDA_SUCCESS);
    return gates_.back();
  }
  static bool is_done(CUstream stream) {
    return call<decltype(&cuStreamQuery)>("cuStreamQuery")(stream) == CUDA_SUCCESS;
  }
  static void set(CUdeviceptr at, int value, std::uint64_t bytes, CUstream stream) {
    EXPECT_EQ(call<decltype(&cuMemsetD8Async)>("cuMemsetD8Async")(at, static_cast<unsigned char>(value), bytes, stream),
              CUDA_SUCCESS);
  }

  static std::string& directory() {
    static std::string path;
    return path;
  }
  static void*& handle() {
    static void* library = nullptr;
    return library;
  }
  CUcontext context_ = nullptr;
  CUstream a_ = nullptr, b_ = nullptr;
  std::vector<std::atomic<std::uint64_t>*> gates_;
  std::vector<std::unique_ptr<Pool>> pools_;
};

TEST_F(PoolTest, AFreedBlockIsUsedAgainOnItsStreamAtOnce) {
  Pool* pool = this->pool(64 * kMiB);
  hold(a_);
  const Result<CUdeviceptr> first = pool->allocate(40 * kMiB, a_);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(pool->free(*first, a_).ok());
  EXPECT_EQ(*pool->allocate(40 * kMiB, a_), *first);
  EXPECT_EQ(pool->stats().waits + pool->stats().drains, 0u);
}

TEST_F(PoolTest, AnotherStreamWaitsForTheOneThatHadTheBlock) {
  Pool* pool = this->pool(64 * kMiB);
  const CUdeviceptr first = *pool->allocate(40 * kMiB, a_);
  auto* gate = hold(a_);
  set(first, 1, kMiB, a_);
  ASSERT_TRUE(pool->free(first, a_).ok());
  const Result<CUdeviceptr> second = pool->allocate(40 * kMiB, b_);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(*second, first);
  EXPECT_EQ(pool->stats().waits, 1u);
  set(*second, 2, kMiB, b_);
  EXPECT_FALSE(is_done(b_)) << "b would write what a still uses";
  gate->store(0);
  ASSERT_EQ(call<decltype(&cuStreamSynchronize)>("cuStreamSynchronize")(b_), CUDA_SUCCESS);
  unsigned char value = 0;
  ASSERT_EQ(call<decltype(&cuMemcpyDtoH)>("cuMemcpyDtoH_v2")(&value, *second, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 2);
}

TEST_F(PoolTest, WhatAStreamHasFinishedWithIsHadWithoutAWait) {
  Pool* pool = this->pool(64 * kMiB);
  ASSERT_TRUE(pool->free(*pool->allocate(40 * kMiB, a_), a_).ok());
  EXPECT_TRUE(pool->allocate(40 * kMiB, b_).ok());
  EXPECT_EQ(pool->stats().waits, 0u);
}

TEST_F(PoolTest, AStreamTakesOthersMemoryOnlyWhenThereIsNoOther) {
  Pool* pool = this->pool(64 * kMiB);
  const CUdeviceptr first = *pool->allocate(16 * kMiB, a_);
  hold(a_);
  ASSERT_TRUE(pool->free(first, a_).ok());
  EXPECT_NE(*pool->allocate(16 * kMiB, b_), first);
  EXPECT_EQ(pool->stats().waits, 0u);
}

TEST_F(PoolTest, FreePiecesThatLieApartAreMovedTogether) {
  Pool* pool = this->pool(64 * kMiB);
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(*pool->allocate(8 * kMiB, a_));
  for (std::size_t i = 0; i < 8; i += 2) {
    set(blocks[i + 1], static_cast<int>(i), 8 * kMiB, a_);
    ASSERT_TRUE(pool->free(blocks[i], a_).ok());
  }
  EXPECT_DOUBLE_EQ(pool->stats().fragmentation_ratio, 0.75);
  const Result<CUdeviceptr> whole = pool->allocate(32 * kMiB, a_);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(pool->stats().gathers, 1u);
  set(*whole, 99, 32 * kMiB, a_);
  std::vector<unsigned char> bytes(8 * kMiB);
  ASSERT_EQ(call<decltype(&cuStreamSynchronize)>("cuStreamSynchronize")(a_), CUDA_SUCCESS);
  for (std::size_t i = 0; i < 8; i += 2) {
    ASSERT_EQ(call<decltype(&cuMemcpyDtoH)>("cuMemcpyDtoH_v2")(bytes.data(), blocks[i + 1], bytes.size()),
              CUDA_SUCCESS);
    EXPECT_EQ(bytes, std::vector<unsigned char>(bytes.size(), static_cast<unsigned char>(i))) << "others' memory";
  }
}

TEST_F(PoolTest, AnExportablePoolHasOneDriverAllocationAndMovesNothing) {
  Pool* pool = this->pool(64 * kMiB, true);
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(*pool->allocate(8 * kMiB, a_));
  for (std::size_t i = 0; i < 8; i += 2) ASSERT_TRUE(pool->free(blocks[i], a_).ok());
  EXPECT_EQ(pool->allocate(32 * kMiB, a_).status().code(), Code::kResourceExhausted);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(call<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange_v2")(&base, &bytes, blocks[5]), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 64 * kMiB);
}

TEST_F(PoolTest, AnErrorSaysWhatThePoolHolds) {
  Pool* pool = this->pool(64 * kMiB);
  ASSERT_TRUE(pool->allocate(48 * kMiB, a_).ok());
  const Status status = pool->allocate(32 * kMiB, a_).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the pool of 64 MiB has no 32 MiB in one piece: 48 MiB active, 0 B kept, "
                                          "16 MiB free, largest 16 MiB, fragmentation 0 %"));
  EXPECT_EQ(pool->stats().failures, 1u);
  EXPECT_TRUE(pool->allocate(16 * kMiB, a_).ok()) << "and goes on";
}

TEST_F(PoolTest, WhatDoesNotFitTheDeviceIsRefusedWithWhatItHas) {
  PoolOptions options;
  EXPECT_EQ(Pool::create(options).status().code(), Code::kInvalidArgument);
  options.capacity_bytes = 1ull << 60;
  const Status status = Pool::create(options).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the device has"));
}

TEST_F(PoolTest, WithoutAContextThereIsNoPool) {
  ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(nullptr), CUDA_SUCCESS);
  PoolOptions options;
  options.capacity_bytes = kMiB;
  EXPECT_EQ(Pool::create(options).status().code(), Code::kFailedPrecondition);
  ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(context_), CUDA_SUCCESS);
}

TEST_F(PoolTest, FreeingTwiceOrWhatIsNoBlockIsAnErrorAndChangesNothing) {
  Pool* pool = this->pool(64 * kMiB);
  for (std::uint64_t bytes : {std::uint64_t{100}, 3 * kMiB}) {
    const CUdeviceptr block = *pool->allocate(bytes, a_);
    EXPECT_EQ(pool->free(block + 512, a_).code(), Code::kInvalidArgument);
    EXPECT_EQ(pool->free(block + 1, a_).code(), Code::kInvalidArgument);
    EXPECT_TRUE(pool->free(block, a_).ok());
    EXPECT_EQ(pool->free(block, a_).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(pool->free(0, a_).code(), Code::kInvalidArgument);
  EXPECT_EQ(pool->allocate(0, a_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool->stats().active_bytes, 0u);
  EXPECT_EQ(pool->stats().frees, 2u);
}

TEST_F(PoolTest, SmallBlocksAreSharedOutOfSlabsAndComeBack) {
  Pool* pool = this->pool(4 * kMiB);
  std::vector<CUdeviceptr> blocks;
  std::mt19937 random(1);
  std::uint64_t rounded = 0;
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t bytes = 1 + random() % 8192;
    blocks.push_back(*pool->allocate(bytes, a_));
    EXPECT_EQ(blocks.back() % 512, 0u);
    rounded += bytes;
  }
  EXPECT_GE(pool->stats().active_bytes, rounded);
  EXPECT_LT(pool->stats().active_bytes, rounded * 5 / 4);
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
  for (CUdeviceptr block : blocks) ASSERT_TRUE(pool->free(block, a_).ok());
  EXPECT_EQ(pool->stats().active_bytes, 0u);
  EXPECT_TRUE(pool->allocate(4 * kMiB, a_).ok()) << "what the thread kept is given up before an allocation fails";
  EXPECT_EQ(pool->stats().kept_bytes, 0u);
}

TEST_F(PoolTest, ASmallBlockFreedBehindAnotherStreamWaitsForThatOne) {
  Pool* pool = this->pool(2 * kMiB);
  std::vector<CUdeviceptr> blocks;
  for (Result<CUdeviceptr> block = pool->allocate(8192, a_); block.ok(); block = pool->allocate(8192, a_))
    blocks.push_back(*block);
  EXPECT_EQ(blocks.size(), 256u);
  auto* gate = hold(b_);
  ASSERT_TRUE(pool->free(blocks[3], b_).ok());
  const Result<CUdeviceptr> again = pool->allocate(8192, a_);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, blocks[3]);
  set(*again, 7, 8192, a_);
  EXPECT_FALSE(is_done(a_)) << "b still uses it";
  gate->store(0);
}

TEST_F(PoolTest, AThreadsOwnStreamIsAnotherInEveryThread) {
  Pool* pool = this->pool(64 * kMiB);
  const CUdeviceptr mine = *pool->allocate(40 * kMiB, CU_STREAM_PER_THREAD);
  ASSERT_TRUE(pool->free(mine, CU_STREAM_PER_THREAD).ok());
  std::thread([&] {
    ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(context_), CUDA_SUCCESS);
    const Result<CUdeviceptr> theirs = pool->allocate(40 * kMiB, CU_STREAM_PER_THREAD);
    EXPECT_TRUE(theirs.ok()) << theirs.status().message();
    EXPECT_TRUE(pool->free(*theirs, CU_STREAM_PER_THREAD).ok());
  }).join();
  EXPECT_EQ(pool->stats().drains, 1u) << "only the device as a whole can tell that another thread's stream is done";
  EXPECT_TRUE(pool->allocate(64 * kMiB, a_).ok()) << "what a thread freed that has ended is not lost";
}

TEST_F(PoolTest, AStreamThatIsForgottenMayBeDestroyed) {
  Pool* pool = this->pool(64 * kMiB);
  for (int i = 0; i < 20; ++i) {
    CUstream stream = this->stream();
    const CUdeviceptr large = *pool->allocate(40 * kMiB, stream), small = *pool->allocate(1000, stream);
    ASSERT_TRUE(pool->free(large, stream).ok());
    ASSERT_TRUE(pool->free(small, stream).ok());
    ASSERT_TRUE(pool->forget(stream).ok());
    ASSERT_EQ(call<decltype(&cuStreamDestroy)>("cuStreamDestroy_v2")(stream), CUDA_SUCCESS);
  }
  EXPECT_TRUE(pool->allocate(64 * kMiB, a_).ok());
  EXPECT_EQ(pool->stats().waits + pool->stats().drains, 0u);
  EXPECT_TRUE(pool->forget(b_).ok()) << "which has never used it";
}

TEST_F(PoolTest, WhileAStreamIsCapturedOthersMemoryIsNotTaken) {
  Pool* pool = this->pool(64 * kMiB);
  ASSERT_TRUE(pool->free(*pool->allocate(40 * kMiB, b_), b_).ok());
  ASSERT_EQ(call<decltype(&cuStreamBeginCapture)>("cuStreamBeginCapture_v2")(a_, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_SUCCESS);
  EXPECT_TRUE(pool->allocate(16 * kMiB, a_).ok());
  const Status status = pool->allocate(40 * kMiB, a_).status();
  EXPECT_THAT(status.message(), HasSubstr("captured"));
  EXPECT_TRUE(pool->allocate(32 * kMiB, b_).ok()) << "nor is the other one disturbed";
  CUgraph graph = nullptr;
  EXPECT_EQ(call<decltype(&cuStreamEndCapture)>("cuStreamEndCapture")(a_, &graph), CUDA_SUCCESS)
      << "the capture is whole";
}

TEST_F(PoolTest, ManyThreadsOnManyStreams) {
  Pool* pool = this->pool(32 * kMiB);
  std::vector<CUstream> streams = {a_, b_, stream(), nullptr, CU_STREAM_PER_THREAD};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(context_), CUDA_SUCCESS);
      std::mt19937 random(t);
      std::vector<std::pair<CUdeviceptr, CUstream>> mine;
      for (int i = 0; i < 4000; ++i) {
        CUstream stream = streams[random() % streams.size()];
        if (random() % 2 == 0 || mine.empty()) {
          const std::uint64_t bytes = random() % 3 == 0 ? 1 + random() % kMiB : 1 + random() % 9000;
          if (Result<CUdeviceptr> got = pool->allocate(bytes, stream); got.ok()) mine.emplace_back(*got, stream);
        } else {
          std::swap(mine[random() % mine.size()], mine.back());
          EXPECT_TRUE(pool->free(mine.back().first, random() % 4 == 0 ? stream : mine.back().second).ok());
          mine.pop_back();
        }
      }
      for (const auto& [block, stream] : mine) EXPECT_TRUE(pool->free(block, stream).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.active_bytes, 0u);
  EXPECT_EQ(stats.allocations, stats.frees);
  EXPECT_EQ(stats.kept_bytes + stats.free_bytes, stats.reserved_bytes);
  EXPECT_TRUE(pool->allocate(32 * kMiB, a_).ok()) << to_text(pool->stats());
}

}  // namespace
}  // namespace sluice::memory
