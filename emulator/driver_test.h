// What the tests of the emulated driver share.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)
#define ASSERT_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

namespace sluice::emulator::testing {

inline constexpr char kPtx[] = R"(
.version 6.4
.target sm_75
.address_size 64
// Bodies do not matter to the emulator.
.visible .entry spin_ns(.param .u64 ns) { ret; }
.visible .entry increment(.param .u64 word, .param .u32 by) { ret; }
.visible .entry fill(.param .u64 .ptr .global .align 4 out, .param .f32 value, .param .u32 n) { ret; }
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)
{
  .reg .pred %p<2>;
  /* { */ ret;
}
.visible .entry matmul_f32(.param .u64 a, .param .u64 b, .param .u64 c,
                           .param .u32 m, .param .u32 n, .param .u32 k) { ret; }
)";

inline void launch_spin(CUfunction spin, std::uint64_t ns, CUstream stream) {
  void* params[] = {&ns};
  EXPECT_OK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
}

// A runtime directory of the test's own, so that tests which run at once share no card. Call before cuInit.
std::string use_own_machine();
void remove_machine(const std::string& directory);

// A context on card 0 and the kernels above.
class DriverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { directory_ = use_own_machine(); }
  static void TearDownTestSuite() { remove_machine(directory_); }
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDeviceGet(&device_, 0));
    ASSERT_OK(cuCtxCreate(&context_, nullptr, 0, device_));
    ASSERT_OK(cuModuleLoadData(&module_, kPtx));
  }
  void TearDown() override { EXPECT_OK(cuCtxDestroy(context_)); }
  CUfunction function(const char* name) {
    CUfunction out = nullptr;
    EXPECT_OK(cuModuleGetFunction(&out, module_, name));
    return out;
  }

  // A closed gate word in pinned memory. Opened at the latest by its destructor, lest the context never end.
  struct Gate {
    Gate() {
      void* at = nullptr;
      EXPECT_OK(cuMemHostAlloc(&at, 8, CU_MEMHOSTALLOC_DEVICEMAP));
      word = new (at) std::atomic<std::uint64_t>(1);
    }
    ~Gate() { open(); }
    CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(word); }
    void open() const {
      if (word->load() == 1) word->store(0);
    }
    std::atomic<std::uint64_t>* word;
  };

  static inline std::string directory_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace sluice::emulator::testing
