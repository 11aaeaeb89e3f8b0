// The pool through its C functions and PyTorch's two, on the emulator.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "sluice.h"
#include "sluice/driver.h"

namespace {

using ::testing::HasSubstr;
constexpr std::uint64_t kMiB = 1 << 20;

class CPoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory() = (std::filesystem::temp_directory_path() / "sluice-pool-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(directory().data()), nullptr);
    setenv("SLUICE_RUNTIME_DIR", directory().c_str(), 1);
    setenv("SLUICE_DRIVER", SLUICE_EMULATOR, 1);
    auto library = sluice::driver::open_process_library();
    ASSERT_TRUE(library.ok()) << library.status().message();
    CUcontext context = nullptr;
    const auto init = sluice::driver::symbol<decltype(&cuInit)>(*library, "cuInit");
    const auto retain =
        sluice::driver::symbol<decltype(&cuDevicePrimaryCtxRetain)>(*library, "cuDevicePrimaryCtxRetain");
    const auto set = sluice::driver::symbol<decltype(&cuCtxSetCurrent)>(*library, "cuCtxSetCurrent");
    ASSERT_EQ(init(0), CUDA_SUCCESS);
    ASSERT_EQ(retain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(set(context), CUDA_SUCCESS);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory()); }
  static std::string& directory() {
    static std::string path;
    return path;
  }
};

TEST_F(CPoolTest, AllocatesFreesAndCounts) {
  sluice_pool_options options = {};
  options.size = sizeof options;
  options.capacity_bytes = 64 * kMiB;
  sluice_pool* pool = nullptr;
  ASSERT_EQ(sluice_pool_create(&options, &pool), SLUICE_OK) << sluice_last_error();
  uint64_t block = 0, other = 0;
  ASSERT_EQ(sluice_pool_allocate(pool, 48 * kMiB, nullptr, &block), SLUICE_OK) << sluice_last_error();
  EXPECT_EQ(sluice_pool_allocate(pool, 48 * kMiB, nullptr, &other), SLUICE_RESOURCE_EXHAUSTED);
  EXPECT_THAT(sluice_last_error(), HasSubstr("48 MiB active"));
  EXPECT_EQ(other, 0u);
  EXPECT_EQ(sluice_pool_free(pool, block, nullptr), SLUICE_OK);
  EXPECT_EQ(sluice_pool_free(pool, block, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_pool_forget(pool, nullptr), SLUICE_OK);
  sluice_pool_stats stats = {};
  stats.size = sizeof stats;
  ASSERT_EQ(sluice_pool_get_stats(pool, &stats), SLUICE_OK);
  EXPECT_EQ(stats.reserved_bytes, 64 * kMiB);
  EXPECT_EQ(stats.peak_bytes, 48 * kMiB);
  EXPECT_EQ(stats.active_bytes, 0u);
  EXPECT_EQ(stats.failures, 1u);
  sluice_pool_destroy(pool);
}

TEST_F(CPoolTest, AnOlderCallersStructIsNotOverrun) {
  sluice_pool_options options = {};
  options.size = offsetof(sluice_pool_options, exportable);
  options.capacity_bytes = 2 * kMiB;
  options.exportable = -1;  // not of that caller's struct
  sluice_pool* pool = nullptr;
  ASSERT_EQ(sluice_pool_create(&options, &pool), SLUICE_OK) << sluice_last_error();
  sluice_pool_stats stats = {};
  stats.size = offsetof(sluice_pool_stats, active_bytes);
  stats.active_bytes = 4711;
  EXPECT_EQ(sluice_pool_get_stats(pool, &stats), SLUICE_OK);
  EXPECT_EQ(stats.reserved_bytes, 2 * kMiB);
  EXPECT_EQ(stats.active_bytes, 4711u);
  stats.size = 0;
  EXPECT_EQ(sluice_pool_get_stats(pool, &stats), SLUICE_INVALID_ARGUMENT);
  sluice_pool_destroy(pool);
}

TEST_F(CPoolTest, NullsAreErrorsThatNameTheArgument) {
  sluice_pool* pool = nullptr;
  uint64_t block = 0;
  EXPECT_EQ(sluice_pool_create(nullptr, &pool), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_last_error(), HasSubstr("'options'"));
  EXPECT_EQ(sluice_pool_allocate(nullptr, 1, nullptr, &block), SLUICE_INVALID_ARGUMENT);
  EXPECT_THAT(sluice_last_error(), HasSubstr("'pool'"));
  EXPECT_EQ(sluice_pool_free(nullptr, 1, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_pool_forget(nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(sluice_pool_get_stats(nullptr, nullptr), SLUICE_INVALID_ARGUMENT);
  sluice_pool_destroy(nullptr);
}

TEST_F(CPoolTest, PyTorchsFunctionsMakeOnePoolForADevice) {
  sluice_pool_stats stats = {};
  stats.size = sizeof stats;
  EXPECT_EQ(sluice_torch_get_stats(0, &stats), SLUICE_NOT_FOUND);
  setenv("SLUICE_POOL_SIZE", "much", 1);
  EXPECT_THROW(sluice_torch_allocate(1, 0, nullptr), std::runtime_error);
  setenv("SLUICE_POOL_SIZE", "64MiB", 1);
  void* block = sluice_torch_allocate(1000, 0, nullptr);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(sluice_torch_allocate(0, 0, nullptr), nullptr);
  try {
    sluice_torch_allocate(64 * kMiB, 0, nullptr);
    FAIL() << "that cannot fit beside the block";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the pool of 64 MiB has no 64 MiB in one piece"));
  }
  sluice_torch_free(block, 1000, 0, nullptr);
  sluice_torch_free(nullptr, 0, 0, nullptr);
  ASSERT_EQ(sluice_torch_get_stats(0, &stats), SLUICE_OK);
  EXPECT_EQ(stats.allocations, stats.frees);
}

TEST(BatchHint, IsWhatTheFileSaysAndElseAll) {
  const std::string path = testing::TempDir() + "batch-hint-" + std::to_string(getpid());
  unsetenv("SLUICE_BATCH_HINT_FILE");
  EXPECT_EQ(sluice_batch_hint(), 1);
  setenv("SLUICE_BATCH_HINT_FILE", path.c_str(), 1);
  EXPECT_EQ(sluice_batch_hint(), 1) << "there is no file while the card is well";
  for (const auto& [text, ratio] : {std::pair<const char*, double>{"0.25\n", 0.25},
                                    {"1.00\n", 1},
                                    {"0.00\n", 1},
                                    {"", 1},
                                    {"nan\n", 1},
                                    {"-1\n", 1},
                                    {"seven\n", 1}}) {
    std::ofstream(path) << text;
    EXPECT_EQ(sluice_batch_hint(), ratio) << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
