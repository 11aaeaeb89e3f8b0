// What the tests of the shim share: the shim over the emulated driver, opened as a program opens the driver, on a board
// that the test made.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "sluice/base/clock.h"
#include "sluice/board.h"

namespace sluice::shim {

inline constexpr int kBelow = 0, kOwn = 50, kAbove = 100;  // priorities; the test's process is kOwn

inline constexpr char kPtx[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry spin_ns(.param .u64 ns) { ret; }
.visible .entry increment(.param .u64 word, .param .u32 by) { ret; }
)";

// Whether it comes true within a limit that only a failing test reaches.
inline bool eventually(const std::function<bool()>& happened) {
  for (const std::uint64_t deadline = now_ns() + 60 * kNanosPerSecond; now_ns() < deadline; sleep_ns(kNanosPerMilli)) {
    if (happened()) return true;
  }
  return happened();
}

// A driver's entry points, by the names that are exported: the shim's, or those of the emulator behind it.
struct Api {
  explicit Api(void* library) {
    const auto get = [library](auto* function, const char* name) {
      *reinterpret_cast<void**>(function) = dlsym(library, name);
      ASSERT_NE(*function, nullptr) << name;
    };
    get(&init, "cuInit");
    get(&device_get, "cuDeviceGet");
    get(&device_get_uuid, "cuDeviceGetUuid_v2");
    get(&retain, "cuDevicePrimaryCtxRetain");
    get(&set_current, "cuCtxSetCurrent");
    get(&synchronize_context, "cuCtxSynchronize");
    get(&module_load, "cuModuleLoadData");
    get(&get_function, "cuModuleGetFunction");
    get(&stream_create, "cuStreamCreate");
    get(&stream_destroy, "cuStreamDestroy_v2");
    get(&synchronize, "cuStreamSynchronize");
    get(&synchronize_per_thread, "cuStreamSynchronize_ptsz");
    get(&event_create, "cuEventCreate");
    get(&event_record, "cuEventRecord");
    get(&event_synchronize, "cuEventSynchronize");
    get(&event_destroy, "cuEventDestroy_v2");
    get(&wait_value, "cuStreamWaitValue64_v2");
    get(&launch, "cuLaunchKernel");
    get(&launch_per_thread, "cuLaunchKernel_ptsz");
    get(&launch_cooperative, "cuLaunchCooperativeKernel");
    get(&launch_config, "cuLaunchKernelEx");
    get(&alloc, "cuMemAlloc_v2");
    get(&mem_info, "cuMemGetInfo_v2");
    get(&host_alloc, "cuMemHostAlloc");
    get(&copy_to_device_async, "cuMemcpyHtoDAsync_v2");
    get(&copy_within_device_async, "cuMemcpyDtoDAsync_v2");
    get(&copy_to_host, "cuMemcpyDtoH_v2");
    get(&copy_to_host_async, "cuMemcpyDtoHAsync_v2");
    get(&memset_async, "cuMemsetD32Async");
  }

  decltype(&::cuInit) init;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetUuid) device_get_uuid;
  decltype(&::cuDevicePrimaryCtxRetain) retain;
  decltype(&::cuCtxSetCurrent) set_current;
  CUresult (*synchronize_context)();
  decltype(&::cuModuleLoadData) module_load;
  decltype(&::cuModuleGetFunction) get_function;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamDestroy) stream_destroy;
  decltype(&::cuStreamSynchronize) synchronize, synchronize_per_thread;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventSynchronize) event_synchronize;
  decltype(&::cuEventDestroy) event_destroy;
  decltype(&::cuStreamWaitValue64) wait_value;
  decltype(&::cuLaunchKernel) launch, launch_per_thread;
  decltype(&::cuLaunchCooperativeKernel) launch_cooperative;
  decltype(&::cuLaunchKernelEx) launch_config;
  decltype(&::cuMemAlloc) alloc;
  decltype(&::cuMemGetInfo) mem_info;
  decltype(&::cuMemHostAlloc) host_alloc;
  decltype(&::cuMemcpyHtoDAsync) copy_to_device_async;
  decltype(&::cuMemcpyDtoDAsync) copy_within_device_async;
  decltype(&::cuMemcpyDtoH) copy_to_host;
  decltype(&::cuMemcpyDtoHAsync) copy_to_host_async;
  decltype(&::cuMemsetD32Async) memset_async;
};

class ShimTest : public testing::Test {
 public:
  // The program's way to the driver, and the way past the shim, which the test uses to see what is.
  const Api& shim() const { return *shim_; }
  const Api& driver() const { return *driver_; }

  // Kernels with different numbers of blocks are different ones to the shim.
  void spin(CUstream stream, std::uint64_t ns, unsigned blocks = 1) const {
    void* params[] = {&ns};
    EXPECT_EQ(shim_->launch(spin_, blocks, 1, 1, 32, 1, 1, 0, stream, params, nullptr), CUDA_SUCCESS);
  }
  // Adds 7 to the word, by one of the ways to launch.
  void add_seven(decltype(&::cuLaunchKernel) launch, CUstream stream, CUdeviceptr word) const {
    unsigned by = 7;
    void* params[] = {&word, &by};
    EXPECT_EQ(launch(increment_, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr), CUDA_SUCCESS);
  }
  CUdeviceptr word_of(unsigned value) const {
    CUdeviceptr word = 0;
    EXPECT_EQ(driver_->alloc(&word, sizeof value), CUDA_SUCCESS);
    EXPECT_EQ(driver_->memset_async(word, value, 1, witness_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->synchronize(witness_), CUDA_SUCCESS);
    return word;
  }
  // What the word is, once work that goes past the shim and is submitted now is done.
  unsigned now(CUdeviceptr word) const {
    unsigned value = 0;
    EXPECT_EQ(driver_->copy_to_host_async(&value, word, sizeof value, witness_), CUDA_SUCCESS);
    EXPECT_EQ(driver_->synchronize(witness_), CUDA_SUCCESS);
    return value;
  }

  // Another process, of a job of that priority. Returns its client slot.
  int add_other(int priority) {
    board::JobSpec spec;
    spec.priority = priority;
    spec.name = "other";
    const Result<int> job = board::claim_job(board_, spec, own_identity());
    EXPECT_TRUE(job.ok());
    const Result<int> client = board::claim_client(board_, *job, own_identity());
    EXPECT_TRUE(client.ok());
    others_.push_back(*client);
    return *client;
  }
  board::Client& other(int slot) const { return board_->clients[slot]; }
  board::Job& job_of(int slot) const { return board_->jobs[board_->clients[slot].job.load()]; }

  board::Board& the_board() const { return *board_; }
  board::Client& self() const { return board_->clients[client_]; }
  int client() const { return client_; }
  board::GateBits own_bit() const { return board::closer_bit(client_); }
  void freeze() const { board::close_gate(board_, client_, board::kSpareBit, now_ns()); }
  void thaw() const { board::open_gate(board_, client_, board::kSpareBit, now_ns()); }
  void set_quantum(std::uint64_t ns) const {
    board_->quantum_ns.store(ns);
    board_->epoch.fetch_add(1);
  }

  // Work of the program's that does not end before finish(), on stream().
  void begin_work() const {
    begin_parking();
    EXPECT_EQ(driver_->wait_value(stream_, parking_address(), 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    spin(stream_, 1'000);
  }
  // Waits for this word to be 0 last until finish().
  void begin_parking() const { std::atomic_ref<std::uint64_t>(*parking_).store(1); }
  CUdeviceptr parking_address() const { return reinterpret_cast<CUdeviceptr>(parking_); }
  void finish() const { std::atomic_ref<std::uint64_t>(*parking_).store(0); }

  CUstream stream() const { return stream_; }
  CUcontext context() const { return context_; }
  CUfunction increment() const { return increment_; }

 protected:
  static void SetUpTestSuite() {
    if (board_ != nullptr) return;  // the suite below inherits this
    char directory[] = "/tmp/sluice-shim-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    setenv("SLUICE_RUNTIME_DIR", directory, 1);
    setenv("SLUICE_DRIVER", SLUICE_EMULATOR, 1);
    driver_ = new Api(dlopen(SLUICE_EMULATOR, RTLD_NOW | RTLD_LOCAL));
    CUdevice device = 0;
    ASSERT_EQ(driver_->init(0), CUDA_SUCCESS);
    ASSERT_EQ(driver_->device_get(&device, 0), CUDA_SUCCESS);
    make_board(uuid_text(device));
    shim_ = new Api(dlopen(SLUICE_SHIM, RTLD_NOW | RTLD_LOCAL));
    ASSERT_NE(shim_->launch, driver_->launch);
    ASSERT_EQ(shim_->retain(&context_, device), CUDA_SUCCESS);
    ASSERT_EQ(shim_->set_current(context_), CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(shim_->module_load(&module, kPtx), CUDA_SUCCESS);
    ASSERT_EQ(shim_->get_function(&spin_, module, "spin_ns"), CUDA_SUCCESS);
    ASSERT_EQ(shim_->get_function(&increment_, module, "increment"), CUDA_SUCCESS);
    ASSERT_EQ(shim_->stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(driver_->stream_create(&witness_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    void* word = nullptr;
    ASSERT_EQ(driver_->host_alloc(&word, sizeof *parking_, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    parking_ = new (word) std::uint64_t(0);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  // The first submission takes the slot.
  void SetUp() override {
    spin(stream_, 1'000);
    ASSERT_EQ(shim_->synchronize(stream_), CUDA_SUCCESS);
    for (int i = 0; i < board::kClients && client_ < 0; ++i) {
      if (board_->clients[i].live.load() != 0) client_ = i;
    }
    ASSERT_GE(client_, 0);
  }
  void TearDown() override {
    finish();
    thaw();
    EXPECT_EQ(shim_->synchronize_context(), CUDA_SUCCESS);
    for (int slot : others_) {
      const int job = static_cast<int>(board_->clients[slot].job.load());
      board_->clients[slot].owner.store(own_identity() + (ProcessIdentity{1} << kPidBits));  // nobody's
      board::reap(board_, now_ns());
      board::release_job(board_, job);
    }
    board_->linger_ns.store(board::kDefaultLingerNs);
    set_quantum(board::kDefaultQuantumNs);
    EXPECT_TRUE(eventually([&] { return self().active.load() == 0 && self().gate.load() == 0; }));
  }

 private:
  static std::string uuid_text(CUdevice device) {
    CUuuid uuid = {};
    EXPECT_EQ(driver_->device_get_uuid(&uuid, device), CUDA_SUCCESS);
    std::string text = "GPU";
    for (int i = 0; i < 16; ++i) {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
      text += (i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(hex);
    }
    return text;
  }
  static void make_board(const std::string& uuid) {
    char path[256];
    ASSERT_TRUE(board::board_path(uuid.c_str(), path, sizeof path).ok());
    Result<board::Board*> mapped = board::map(path, uuid.c_str(), "Test card", true);
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    board_ = *mapped;
    board::JobSpec spec;
    spec.priority = kOwn;
    spec.name = "tested";
    const Result<int> job = board::claim_job(board_, spec, own_identity());
    ASSERT_TRUE(job.ok());
    setenv("SLUICE_BOARDS", (uuid + "=" + path + ":" + std::to_string(*job)).c_str(), 1);
  }

  static inline std::string directory_;
  static inline board::Board* board_ = nullptr;
  static inline const Api* shim_ = nullptr;
  static inline const Api* driver_ = nullptr;
  static inline CUcontext context_ = nullptr;
  static inline CUfunction spin_ = nullptr, increment_ = nullptr;
  static inline CUstream stream_ = nullptr, witness_ = nullptr;
  static inline std::uint64_t* parking_ = nullptr;
  static inline int client_ = -1;
  std::vector<int> others_;
};

}  // namespace sluice::shim
