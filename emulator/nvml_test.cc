// libnvidia-ml.so.1 of the emulated machine, opened as the health room opens it, beside the emulated driver.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "driver_test.h"

namespace {

using sluice::emulator::testing::DriverTest;

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

class NvmlTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    library_ = dlopen(SLUICE_EMULATOR_NVML, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  template <class... Args>
  int call(const char* name, Args... args) {
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function != nullptr ? function(args...) : -1;
  }
  void* library_ = nullptr;
};

TEST_F(NvmlTest, AgreesWithTheDriver) {
  char text[96];
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), 1);  // uninitialized
  ASSERT_EQ(call("nvmlInit_v2"), 0);
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 1u);
  void *card = nullptr, *same = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &card), 0);
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 1u, &same), 2);
  ASSERT_EQ(call("nvmlDeviceGetUUID", card, text, 96u), 0);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(text), &same), 0);
  EXPECT_EQ(same, card);
  CUuuid uuid;
  EXPECT_OK(cuDeviceGetUuid(&uuid, device_));
  char digits[3];
  std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[0]));
  EXPECT_EQ(std::string(text).substr(0, 6), std::string("GPU-") + digits);
  EXPECT_EQ(call("nvmlDeviceGetName", card, text, 4u), 7);  // too short
  EXPECT_EQ(call("nvmlDeviceGetName", card, text, 96u), 0);
  EXPECT_STREQ(text, "NVIDIA GeForce RTX 2060 (emulated)");

  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAlloc(&p, 1 << 30));
  Memory memory = {};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", card, &memory), 0);
  EXPECT_EQ(memory.used, 1ull << 30);
  EXPECT_EQ(memory.total, 6442450944ull);
  Process processes[4] = {};
  unsigned room = 0;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", card, &room, static_cast<Process*>(nullptr)), 7);
  EXPECT_EQ(room, 1u);
  room = 4;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", card, &room, processes), 0);
  EXPECT_EQ(room, 1u);
  EXPECT_EQ(processes[0].pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ(processes[0].bytes, 1ull << 30);
  EXPECT_OK(cuMemFree(p));
  EXPECT_EQ(call("nvmlShutdown"), 0);
}

TEST_F(NvmlTest, BothLibrariesSayWhatTheyAre) {
  EXPECT_NE(dlsym(library_, "sluice_emulator_version"), nullptr);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);  // by its soname
  ASSERT_NE(driver, nullptr);
  EXPECT_NE(dlsym(driver, "sluice_emulator_version"), nullptr);
  // Every name that a stand-in must export is there, and nothing of the emulator's inside is.
#define SLUICE_EXPORT(symbol) #symbol,
  const char* const names[] = {
#include "sluice/cuda_abi/exports.inc"
  };
#undef SLUICE_EXPORT
  for (const char* name : names) EXPECT_NE(dlsym(driver, name), nullptr) << name;
  EXPECT_EQ(dlsym(driver, "_ZN6sluice8emulator5stateEv"), nullptr);
}

}  // namespace
