// The emulated driver's API, one process. Links the emulator itself.
#include "driver_test.h"

#include <atomic>
#include <thread>

namespace {

using sluice::emulator::testing::DriverTest;
using sluice::emulator::testing::launch_spin;

TEST_F(DriverTest, DeviceSaysWhatItsProfileSays) {
  char name[100];
  EXPECT_OK(cuDeviceGetName(name, sizeof name, device_));
  EXPECT_STREQ(name, "NVIDIA GeForce RTX 2060 (emulated)");
  std::size_t bytes = 0;
  EXPECT_OK(cuDeviceTotalMem(&bytes, device_));
  EXPECT_EQ(bytes, 6442450944u);
  auto attribute = [&](CUdevice_attribute which) {
    int value = -1;
    EXPECT_OK(cuDeviceGetAttribute(&value, which, device_));
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 30);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 3 << 20);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
  int value = 0;
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 7), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DriverTest, ContextsStackUp) {
  CUcontext second = nullptr, now = nullptr;
  EXPECT_OK(cuCtxCreate(&second, nullptr, 0, device_));
  EXPECT_OK(cuCtxGetCurrent(&now));
  EXPECT_EQ(now, second);
  EXPECT_OK(cuCtxPopCurrent(&now));
  EXPECT_EQ(now, second);
  EXPECT_OK(cuCtxGetCurrent(&now));
  EXPECT_EQ(now, context_);
  EXPECT_OK(cuCtxDestroy(second));
  EXPECT_EQ(cuCtxSetCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuCtxSetCurrent(nullptr));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, KernelsCompute) {
  constexpr unsigned kN = 1000;
  std::vector<float> x(kN), y(kN);
  for (unsigned i = 0; i < kN; ++i) {
    x[i] = static_cast<float>(i);
    y[i] = 1;
  }
  CUdeviceptr dx = 0, dy = 0;
  ASSERT_OK(cuMemAlloc(&dx, kN * 4));
  ASSERT_OK(cuMemAlloc(&dy, kN * 4));
  EXPECT_OK(cuMemcpyHtoD(dx, x.data(), kN * 4));
  EXPECT_OK(cuMemcpyHtoD(dy, y.data(), kN * 4));
  unsigned n = kN;
  float a = 2;
  void* params[] = {&n, &a, &dx, &dy};
  EXPECT_OK(cuLaunchKernel(function("saxpy"), 4, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_OK(cuMemcpyDtoH(y.data(), dy, kN * 4));
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[999], 2 * 999 + 1);
  EXPECT_OK(cuMemFree(dx));
  EXPECT_OK(cuMemFree(dy));
}

TEST_F(DriverTest, MatrixProductThroughExtra) {
  const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12};
  float c[4] = {};
  CUdeviceptr p[3];
  for (CUdeviceptr& at : p) ASSERT_OK(cuMemAlloc(&at, 64));
  EXPECT_OK(cuMemcpyHtoD(p[0], a, sizeof a));
  EXPECT_OK(cuMemcpyHtoD(p[1], b, sizeof b));
  struct {
    CUdeviceptr a, b, c;
    unsigned m, n, k, pad;
  } buffer{p[0], p[1], p[2], 2, 2, 3, 0};
  std::size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  EXPECT_OK(cuLaunchKernel(function("matmul_f32"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_OK(cuMemcpyDtoH(c, p[2], sizeof c));
  EXPECT_THAT(c, testing::ElementsAre(58, 64, 139, 154));
}

TEST_F(DriverTest, WrongMemoryIsAnErrorThatStays) {
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc(&p, 400));
  unsigned n = 200000;  // more than there is
  float value = 1;
  void* params[] = {&p, &value, &n};
  EXPECT_OK(cuLaunchKernel(function("fill"), 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DriverTest, StreamsKeepOrderAndEventsMeasure) {
  CUstream stream = nullptr;
  CUevent begin = nullptr, end = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(cuEventCreate(&begin, 0));
  ASSERT_OK(cuEventCreate(&end, 0));
  EXPECT_OK(cuEventRecord(begin, stream));
  for (int i = 0; i < 10; ++i) launch_spin(function("spin_ns"), 1'000'000, stream);
  EXPECT_OK(cuEventRecord(end, stream));
  EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  float ms = 0;
  EXPECT_EQ(cuEventElapsedTime(&ms, begin, end), CUDA_ERROR_NOT_READY);
  EXPECT_OK(cuEventSynchronize(end));
  EXPECT_OK(cuStreamQuery(stream));
  EXPECT_OK(cuEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 10);  // the card may have been somebody else's meanwhile, so no upper bound
  EXPECT_OK(cuStreamDestroy(stream));
  EXPECT_OK(cuEventDestroy(begin));
  EXPECT_OK(cuEventDestroy(end));
  EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, DefaultStreamOrdersBlockingStreamsOnly) {
  Gate gate;
  CUstream blocking = nullptr, free = nullptr;
  ASSERT_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_OK(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(cuStreamWaitValue64(blocking, gate.address(), 0, CU_STREAM_WAIT_VALUE_EQ));
  launch_spin(function("spin_ns"), 1000, nullptr);  // behind the gate of the blocking stream
  launch_spin(function("spin_ns"), 1000, free);
  EXPECT_OK(cuStreamSynchronize(free));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  launch_spin(function("spin_ns"), 1000, CU_STREAM_PER_THREAD);  // blocking, so behind the default stream
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_OK(cuStreamQuery(blocking));
}

TEST_F(DriverTest, GateHoldsAndFreeBlocksMeanwhile) {
  Gate gate;
  CUdeviceptr p = 0, q = 0;
  ASSERT_OK(cuMemAlloc(&p, 4));
  EXPECT_OK(cuMemsetD32(p, 1, 1));
  EXPECT_OK(cuStreamWaitValue32(nullptr, gate.address(), 0, CU_STREAM_WAIT_VALUE_EQ));
  unsigned by = 5;
  void* params[] = {&p, &by};
  EXPECT_OK(cuLaunchKernel(function("increment"), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_OK(cuMemAlloc(&q, 4));
  std::atomic<bool> freed{false};
  std::thread freeing([&] {
    EXPECT_OK(cuCtxSetCurrent(context_));
    EXPECT_OK(cuMemFree(q));
    freed = true;
  });
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(freed);
  gate.open();
  freeing.join();
  unsigned value = 0;
  EXPECT_OK(cuMemcpyDtoH(&value, p, 4));
  EXPECT_EQ(value, 6u);
}

TEST_F(DriverTest, WaitConditions) {
  alignas(8) std::atomic<std::uint64_t> word{0x5};
  ASSERT_OK(cuMemHostRegister(&word, sizeof word, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemHostGetDevicePointer(&p, &word, 0));
  auto passes = [&](cuuint64_t value, unsigned how) {
    CUstream stream = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamWaitValue64(stream, p, value, how));
    EXPECT_OK(cuStreamSynchronize(stream));  // hangs, and so fails by its time limit, where it should pass
    EXPECT_OK(cuStreamDestroy(stream));
  };
  passes(5, CU_STREAM_WAIT_VALUE_EQ);
  passes(4, CU_STREAM_WAIT_VALUE_GEQ);
  passes(~0ull, CU_STREAM_WAIT_VALUE_GEQ);  // cyclic
  passes(4, CU_STREAM_WAIT_VALUE_AND);
  passes(2, CU_STREAM_WAIT_VALUE_NOR);
  EXPECT_OK(cuStreamWriteValue64(nullptr, p, 0x100000000ull, 0));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(word.load(), 0x100000000ull);
  EXPECT_EQ(cuStreamWriteValue64(nullptr, p + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemHostUnregister(&word));
  EXPECT_EQ(cuStreamWriteValue64(nullptr, p, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, BatchOfMemoryOperations) {
  Gate gate;
  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, gate.address(), {.value64 = 0}, CU_STREAM_WAIT_VALUE_EQ, 0};
  ops[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, gate.address(), {.value64 = 42}, 0, 0};
  EXPECT_OK(cuStreamBatchMemOp(nullptr, 2, ops, 0));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(gate.word->load(), 42u);
}

TEST_F(DriverTest, HostFunctionsRunInOrder) {
  std::vector<int> order;
  struct Item {
    std::vector<int>* order;
    int value;
  } first{&order, 1}, second{&order, 2};
  launch_spin(function("spin_ns"), 100'000, nullptr);
  EXPECT_OK(cuLaunchHostFunc(
      nullptr, [](void* user) { static_cast<Item*>(user)->order->push_back(static_cast<Item*>(user)->value); },
      &first));
  EXPECT_OK(cuStreamAddCallback(
      nullptr,
      [](CUstream, CUresult, void* user) {
        static_cast<Item*>(user)->order->push_back(static_cast<Item*>(user)->value);
      },
      &second, 0));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_THAT(order, testing::ElementsAre(1, 2));
}

TEST_F(DriverTest, CopiesOfAllForms) {
  CUdeviceptr p = 0;
  std::size_t pitch = 0;
  ASSERT_OK(cuMemAllocPitch(&p, &pitch, 8, 4, 4));
  EXPECT_OK(cuMemsetD2D8(p, pitch, 7, 8, 4));
  unsigned char host[4][8] = {};
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = p;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = 8;
  copy.WidthInBytes = 8;
  copy.Height = 4;
  EXPECT_OK(cuMemcpy2D(&copy));
  for (auto& row : host) EXPECT_THAT(row, testing::Each(7));
  EXPECT_OK(cuMemsetD16(p, 0x0102, 4));
  EXPECT_OK(cuMemcpyDtoD(p + pitch, p, 8));
  void* pinned = nullptr;
  ASSERT_OK(cuMemHostAlloc(&pinned, 8, 0));
  EXPECT_OK(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned), p + pitch, 8, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(static_cast<unsigned short*>(pinned)[3], 0x0102);
  EXPECT_EQ(cuMemcpyHtoD(p, host, 1 << 20), CUDA_ERROR_INVALID_VALUE);  // longer than the allocation
  EXPECT_EQ(cuMemcpyHtoD(0x1000, host, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemFreeHost(pinned));
}

TEST_F(DriverTest, PageableSourceMayBeReusedAtOnce) {
  Gate gate;
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc(&p, 4));
  EXPECT_OK(cuStreamWaitValue64(nullptr, gate.address(), 0, CU_STREAM_WAIT_VALUE_EQ));
  int value = 11, back = 0;
  EXPECT_OK(cuMemcpyHtoDAsync(p, &value, 4, nullptr));
  value = 22;
  gate.open();
  EXPECT_OK(cuMemcpyDtoH(&back, p, 4));
  EXPECT_EQ(back, 11);
}

TEST_F(DriverTest, MemoryHasALimit) {
  std::size_t free = 0, total = 0;
  ASSERT_OK(cuMemGetInfo(&free, &total));
  CUdeviceptr p = 0, q = 0;
  EXPECT_EQ(cuMemAlloc(&p, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_OK(cuMemAlloc(&p, free / 2));
  std::size_t left = 0;
  ASSERT_OK(cuMemGetInfo(&left, &total));
  EXPECT_LE(left, free - free / 2);
  EXPECT_EQ(cuMemAlloc(&q, free / 2 + 4096), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemFreeAsync(p, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_OK(cuMemAllocAsync(&q, free / 2 + 4096, nullptr));
  EXPECT_OK(cuMemFree(q));
}

TEST_F(DriverTest, Pointers) {
  CUdeviceptr p = 0, base = 0;
  ASSERT_OK(cuMemAlloc(&p, 100));
  std::size_t bytes = 0;
  EXPECT_OK(cuMemGetAddressRange(&base, &bytes, p + 50));
  EXPECT_EQ(base, p);
  EXPECT_EQ(bytes, 100u);
  unsigned type = 0;
  EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&type)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, ModulesRefuseWhatTheyCannotRun) {
  CUmodule module = nullptr;
  CUfunction f = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module,
                             "\x7f"
                             "ELF"),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  ASSERT_OK(cuModuleLoadData(
      &module, ".version 6.4\n.visible .entry nobody_knows()\n{ ret; }\n.entry saxpy(.param .u8 a) { ret; }"));
  EXPECT_EQ(cuModuleGetFunction(&f, module, "nobody_knows"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetFunction(&f, module, "fill"), CUDA_ERROR_NOT_FOUND);   // not in this module
  EXPECT_EQ(cuModuleGetFunction(&f, module, "saxpy"), CUDA_ERROR_NOT_FOUND);  // other parameters
  EXPECT_OK(cuModuleUnload(module));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, FunctionsSayWhatTheyAre) {
  const char* name = nullptr;
  EXPECT_OK(cuFuncGetName(&name, function("saxpy")));
  EXPECT_STREQ(name, "saxpy");
  std::size_t offset = 0, bytes = 0;
  EXPECT_OK(cuFuncGetParamInfo(function("saxpy"), 2, &offset, &bytes));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(cuFuncGetParamInfo(function("saxpy"), 4, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function("saxpy"), 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  int blocks = 0;
  EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function("saxpy"), 256, 0));
  EXPECT_EQ(blocks, 4);
}

TEST_F(DriverTest, CooperativeGridsMustFit) {
  std::uint64_t ns = 1000;
  void* params[] = {&ns};
  EXPECT_OK(cuLaunchCooperativeKernel(function("spin_ns"), 30, 1, 1, 1024, 1, 1, 0, nullptr, params));
  EXPECT_EQ(cuLaunchCooperativeKernel(function("spin_ns"), 31, 1, 1, 1024, 1, 1, 0, nullptr, params),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_F(DriverTest, LookUps) {
  void *legacy = nullptr, *per_thread = nullptr, *old = nullptr;
  CUdriverProcAddressQueryResult status;
  EXPECT_OK(cuGetProcAddress("cuLaunchKernel", &legacy, 12000, 0, &status));
  EXPECT_OK(cuGetProcAddress("cuLaunchKernel", &per_thread, 12000, 2, &status));
  EXPECT_NE(legacy, per_thread);
  EXPECT_EQ(legacy, reinterpret_cast<void*>(&cuLaunchKernel));
  EXPECT_OK(cuGetProcAddress("cuMemAlloc", &legacy, 12000, 0, &status));
  EXPECT_EQ(legacy, reinterpret_cast<void*>(&cuMemAlloc));
  EXPECT_OK(cuGetProcAddress("cuMemAlloc", &per_thread, 12000, 2, &status));
  EXPECT_EQ(legacy, per_thread);  // exists once
  EXPECT_OK(cuGetProcAddress("cuGetProcAddress", &old, 11030, 0, &status));
  EXPECT_OK(cuGetProcAddress("cuGetProcAddress", &legacy, 12000, 0, &status));
  EXPECT_NE(old, legacy);
  auto first = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t)>(old);
  EXPECT_EQ(first("cuNoSuchThing", &old, 11030, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_OK(cuGetProcAddress("cuNoSuchThing", &legacy, 12000, 0, &status));
  EXPECT_EQ(legacy, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_OK(cuGetProcAddress("cuLibraryLoadData", &legacy, 11000, 0, &status));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST_F(DriverTest, WhatIsMissingSaysSo) {
  const void* table = &table;
  CUuuid id = {};
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
  CUuserObject object = nullptr;
  EXPECT_EQ(cuUserObjectCreate(&object, nullptr, nullptr, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuUserObjectCreate(&object, nullptr, nullptr, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuDeviceGraphMemTrim(device_), CUDA_ERROR_NOT_SUPPORTED);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("runtime API"));
  EXPECT_THAT(said, testing::HasSubstr("cuUserObjectCreate is not supported"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3);  // each once
}

TEST_F(DriverTest, ManyThreadsLaunch) {
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc(&p, 4));
  ASSERT_OK(cuMemsetD32(p, 0, 1));
  ASSERT_OK(cuCtxSynchronize());
  CUfunction increment = function("increment");
  std::vector<std::thread> threads;
  for (int t = 0; t < 64; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_OK(cuCtxSetCurrent(context_));
      CUstream stream = t % 3 == 0 ? CU_STREAM_PER_THREAD : nullptr;
      if (t % 3 == 1) {
        EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      }
      unsigned by = 1;
      void* params[] = {&p, &by};
      for (int i = 0; i < 30; ++i) {
        EXPECT_OK(cuLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
      }
      EXPECT_OK(cuStreamSynchronize(stream));
      if (t % 3 == 1) {
        EXPECT_OK(cuStreamDestroy(stream));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  unsigned count = 0;
  EXPECT_OK(cuMemcpyDtoH(&count, p, 4));
  EXPECT_EQ(count, 64u * 30);
}

TEST_F(DriverTest, FullQueueBlocksUntilThereIsRoom) {
  Gate gate;
  std::atomic<int> launched{0};
  EXPECT_OK(cuStreamWaitValue64(nullptr, gate.address(), 0, CU_STREAM_WAIT_VALUE_EQ));
  CUfunction spin = function("spin_ns");
  std::thread launching([&] {
    EXPECT_OK(cuCtxSetCurrent(context_));
    for (int i = 0; i < 3000; ++i, ++launched) launch_spin(spin, 0, nullptr);
  });
  while (launched < 1023) std::this_thread::yield();
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_LE(launched, 1024);
  gate.open();
  launching.join();
  EXPECT_OK(cuStreamSynchronize(nullptr));
}

}  // namespace
