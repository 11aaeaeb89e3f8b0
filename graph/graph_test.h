// What the tests of pipelines share: the emulator, its kernels, and memory to work on.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "sluice/driver.h"
#include "sluice/graph.h"

namespace sluice::graph {

inline constexpr char kPtx[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry fill(.param .u64 out, .param .f32 value, .param .u32 n) { ret; }
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 n) { ret; }
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }
.visible .entry increment(.param .u64 word, .param .u32 by) { ret; }
)";

class GraphTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory() = (std::filesystem::temp_directory_path() / "sluice-graph-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(directory().data()), nullptr);
    setenv("SLUICE_RUNTIME_DIR", directory().c_str(), 1);
    setenv("SLUICE_DRIVER", SLUICE_EMULATOR, 1);
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(directory(), ignored);
  }
  void SetUp() override {
    Result<void*> library = driver::open_process_library();
    ASSERT_TRUE(library.ok()) << library.status().message();
    library_ = *library;
    CUcontext context = nullptr;
    ASSERT_EQ(call<decltype(&cuInit)>("cuInit")(0), CUDA_SUCCESS);
    ASSERT_EQ(call<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
    ASSERT_EQ(call<decltype(&cuModuleLoadData)>("cuModuleLoadData")(&module_, kPtx), CUDA_SUCCESS);
    stream_ = make_stream();
  }
  void TearDown() override { synchronize(); }

  template <class F>
  F call(const char* name) {
    F found = driver::symbol<F>(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return found;
  }
  CUstream make_stream() {
    CUstream out = nullptr;
    EXPECT_EQ(call<decltype(&cuStreamCreate)>("cuStreamCreate")(&out, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return out;
  }
  void synchronize() { EXPECT_EQ(call<decltype(&cuCtxSynchronize)>("cuCtxSynchronize")(), CUDA_SUCCESS); }
  CUfunction function(const char* name) {
    CUfunction out = nullptr;
    EXPECT_EQ(call<decltype(&cuModuleGetFunction)>("cuModuleGetFunction")(&out, module_, name), CUDA_SUCCESS);
    return out;
  }
  // Device memory with these floats.
  CUdeviceptr floats(const std::vector<float>& values) {
    CUdeviceptr at = 0;
    EXPECT_EQ(call<CUresult (*)(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&at, values.size() * 4), CUDA_SUCCESS);
    EXPECT_EQ(call<CUresult (*)(CUdeviceptr, const void*, std::size_t)>("cuMemcpyHtoD_v2")(at, values.data(),
                                                                                           values.size() * 4),
              CUDA_SUCCESS);
    return at;
  }
  std::vector<float> read(CUdeviceptr at, std::size_t count) {
    synchronize();
    std::vector<float> values(count);
    EXPECT_EQ(call<CUresult (*)(void*, CUdeviceptr, std::size_t)>("cuMemcpyDtoH_v2")(values.data(), at, count * 4),
              CUDA_SUCCESS);
    return values;
  }
  std::unique_ptr<Pipeline> pipeline(const Options& options = {}) {
    Result<std::unique_ptr<Pipeline>> made = Pipeline::create(options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  Kernel kernel(const char* name, std::vector<Argument> arguments) {
    Kernel result;
    result.function = function(name);
    result.arguments = std::move(arguments);
    return result;
  }
  // y = a x + y over n floats that begin at these bytes.
  Kernel saxpy(std::uint32_t n, float a, Argument x, Argument y) { return kernel("saxpy", {n, a, x, y}); }
  Kernel fill(Argument out, float value, std::uint32_t n) { return kernel("fill", {out, value, n}); }

  static std::string& directory() {
    static std::string path;
    return path;
  }
  void* library_ = nullptr;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
};

#define EXPECT_DONE(expression)                  \
  do {                                           \
    const ::sluice::Status done_ = (expression); \
    EXPECT_TRUE(done_.ok()) << done_.message();  \
  } while (false)

}  // namespace sluice::graph
