// How well does the emulated H200 reproduce what was measured on a real one?
//
// A latency client (requests of 1.2 ms: copy in, a block of kernels, copy out; 60 a second, Poisson) runs alone, beside
// a training-like client (kernels of 10-200 us, its queue always full) under time slices, and beside it with a gate:
// the training client waits on a shared word before every 8th launch, which the latency client closes while it has
// work. The latency client's work is chosen so that it takes 1.2 ms alone; everything else is an outcome. All times are
// emulated: wall-clock time divided by SLUICE_EMU_SCALE.
//
// Prints a Markdown table and ends with 1 if a figure is off by more than 20 %.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "sluice/base/clock.h"

namespace {

constexpr char kPtx[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry spin_ns(.param .u64 ns) { ret; }\n";

constexpr double kRatePerS = 60;
// The kernels of one graph launch follow each other without the CPU: one kernel as long as all of them.
constexpr std::uint64_t kGraphNs = 1'130'000;
constexpr std::size_t kInputBytes = 3 * 224 * 224 * 2, kOutputBytes = 4000;
constexpr std::uint64_t kTrainingNs[] = {10'000, 25'000, 40'000, 200'000, 15'000, 90'000, 30'000, 60'000};
constexpr int kTrainingStep = 40;  // kernels between two of its events, of which four are outstanding
constexpr int kGateEvery = 8;
constexpr double kTolerance = 0.20;
constexpr int kMaxRequests = 100'000;

// What the processes share.
struct Shared {
  std::atomic<std::uint32_t> gate;
  std::atomic<std::uint32_t> gated;
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint64_t> kernels;  // that the training client has seen done
  std::atomic<int> latencies;
  float latency_us[kMaxRequests];
};

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = "?";
  cuGetErrorString(result, &text);
  std::fprintf(stderr, "emulator_calibration: %s failed: %s\n", what, text);
  std::_Exit(1);
}
#define CHECK(call) check(call, #call)

struct Client {
  explicit Client(Shared* shared) {
    CHECK(cuInit(0));
    CHECK(cuCtxCreate(&context, nullptr, 0, 0));
    CUmodule module = nullptr;
    CHECK(cuModuleLoadData(&module, kPtx));
    CHECK(cuModuleGetFunction(&spin, module, "spin_ns"));
    CHECK(cuMemHostRegister(shared, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&gate, shared, 0));
  }
  void launch(std::uint64_t ns) const {
    void* params[] = {&ns};
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  }
  CUcontext context = nullptr;
  CUfunction spin = nullptr;
  CUdeviceptr gate = 0;
};

void latency_client(Shared* shared, int requests, double scale) {
  Client client(shared);
  CUdeviceptr input = 0, output = 0;
  void *from = nullptr, *to = nullptr;
  CHECK(cuMemAlloc(&input, kInputBytes));
  CHECK(cuMemAlloc(&output, kOutputBytes));
  CHECK(cuMemAllocHost(&from, kInputBytes));
  CHECK(cuMemAllocHost(&to, kOutputBytes));
  std::mt19937_64 random(1);
  std::exponential_distribution<double> gap_s(kRatePerS);
  const auto run = [&] {
    if (shared->gated != 0) shared->gate = 1;
    CHECK(cuMemcpyHtoDAsync(input, from, kInputBytes, nullptr));
    client.launch(kGraphNs);
    CHECK(cuMemcpyDtoHAsync(to, output, kOutputBytes, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    shared->gate = 0;
  };
  for (int i = 0; i < 10; ++i) run();
  shared->ready = 1;
  double next = static_cast<double>(sluice::now_ns());
  for (int i = 0; i < requests; ++i) {
    next += gap_s(random) * 1e9 * scale;
    const double now = static_cast<double>(sluice::now_ns());
    if (next > now) sluice::sleep_ns(static_cast<std::uint64_t>(next - now));
    run();
    shared->latency_us[i] = static_cast<float>((static_cast<double>(sluice::now_ns()) - next) / scale / 1e3);
    shared->latencies = i + 1;
  }
}

void training_client(Shared* shared) {
  Client client(shared);
  CUevent events[4];
  for (CUevent& event : events) CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  std::uint64_t launched = 0;
  shared->ready = 1;
  for (std::uint64_t step = 0; shared->stop == 0; ++step) {
    CUevent event = events[step % 4];
    if (step >= 4) {
      CHECK(cuEventSynchronize(event));
      shared->kernels += kTrainingStep;
    }
    for (int i = 0; i < kTrainingStep; ++i, ++launched) {
      if (shared->gated != 0 && launched % kGateEvery == 0) {
        CHECK(cuStreamWaitValue32(nullptr, client.gate, 0, CU_STREAM_WAIT_VALUE_EQ));
      }
      client.launch(kTrainingNs[launched % std::size(kTrainingNs)]);
    }
    CHECK(cuEventRecord(event, nullptr));
  }
}

struct Outcome {
  double p50_ms = 0, p99_ms = 0;
  double kernels_per_s = 0;  // of the training client, in emulated time
};

template <class F>
pid_t start(Shared* shared, F body) {
  shared->ready = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    std::_Exit(0);
  }
  while (shared->ready == 0) {
    if (waitpid(pid, nullptr, WNOHANG) != 0) std::exit(1);  // it has said why
    sluice::sleep_ns(1'000'000);
  }
  return pid;
}

Outcome run_cell(Shared* shared, bool high, bool low, bool gated, int requests, double scale) {
  shared->gate = 0;
  shared->gated = gated ? 1 : 0;
  shared->stop = 0;
  shared->kernels = 0;
  shared->latencies = 0;
  const pid_t trains = low ? start(shared, [&] { training_client(shared); }) : 0;
  const std::uint64_t before = shared->kernels, begin = sluice::now_ns();
  if (high) {
    const pid_t serves = start(shared, [&] { latency_client(shared, requests, scale); });
    int status = 0;
    waitpid(serves, &status, 0);
    if (status != 0) std::exit(1);
  } else {
    sluice::sleep_ns(static_cast<std::uint64_t>(requests / kRatePerS * 1e9 * scale / 4));
  }
  Outcome out;
  const double seconds = static_cast<double>(sluice::now_ns() - begin) / 1e9 / scale;
  out.kernels_per_s = static_cast<double>(shared->kernels - before) / seconds;
  if (low) {
    shared->stop = 1;
    waitpid(trains, nullptr, 0);
  }
  const int count = shared->latencies;
  if (count > 0) {
    std::vector<float> sorted(shared->latency_us, shared->latency_us + count);
    std::sort(sorted.begin(), sorted.end());
    out.p50_ms = sorted[static_cast<std::size_t>(count * 0.50)] / 1e3;
    out.p99_ms = sorted[static_cast<std::size_t>(count * 0.99)] / 1e3;
  }
  return out;
}

bool g_fine = true;

// One row: emulated, measured (a range), and how far outside of the range relative to its nearer end.
void row(const char* setup, const char* figure, double emulated, double low, double high, const char* unit) {
  const double off = emulated < low ? emulated / low - 1 : emulated > high ? emulated / high - 1 : 0;
  if (std::abs(off) > kTolerance) g_fine = false;
  char measured[64];
  std::snprintf(measured, sizeof measured, low == high ? "%.2f" : "%.2f-%.2f", low, high);
  std::printf("| %s | %s | %.2f %s | %s %s | %+.0f %% |\n", setup, figure, emulated, unit, measured, unit, off * 100);
}

}  // namespace

int main(int argc, char** argv) {
  int requests = 2000;
  if (argc == 2) requests = std::atoi(argv[1]);
  if (argc > 2 || requests < 100 || requests > kMaxRequests) {
    std::fprintf(stderr, "usage: emulator_calibration [REQUESTS, 100 to 100000]\n");
    return 2;
  }
  setenv("SLUICE_EMU_PROFILE", "h200", 1);
  setenv("SLUICE_EMU_SCALE", "4", 0);
  const double scale = std::atof(std::getenv("SLUICE_EMU_SCALE"));
  std::string directory = (std::filesystem::temp_directory_path() / "sluice-calibration-XXXXXX").string();
  if (!(scale > 0) || mkdtemp(directory.data()) == nullptr) return 1;
  setenv("SLUICE_RUNTIME_DIR", directory.c_str(), 1);
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 1;
  auto* shared = static_cast<Shared*>(at);

  const Outcome low = run_cell(shared, false, true, false, requests, scale);
  const Outcome alone = run_cell(shared, true, false, false, requests, scale);
  const Outcome sliced = run_cell(shared, true, true, false, requests, scale);
  const Outcome gated = run_cell(shared, true, true, true, requests, scale);
  std::filesystem::remove_all(directory);

  const double room = 1 - kRatePerS * alone.p50_ms / 1e3;  // of the GPU's time, beside the latency client
  std::printf("| set-up | figure | emulated | measured | off |\n| --- | --- | --- | --- | --- |\n");
  row("alone", "p50", alone.p50_ms, 1.20, 1.20, "ms");
  row("alone", "p99", alone.p99_ms, 1.95, 2.04, "ms");
  row("time slicing", "p50", sliced.p50_ms, 1.21, 1.21, "ms");
  row("time slicing", "p99", sliced.p99_ms, 5.35, 5.35, "ms");
  row("time slicing", "kept", sliced.kernels_per_s / low.kernels_per_s / room * 100, 100, 100, "%");
  row("gate every 8 launches", "p50", gated.p50_ms, 1.17, 1.17, "ms");
  row("gate every 8 launches", "p99", gated.p99_ms, 1.92, 2.06, "ms");
  row("gate every 8 launches", "kept", gated.kernels_per_s / low.kernels_per_s / room * 100, 85, 97, "%");
  std::printf("\n%d requests a cell, SLUICE_EMU_SCALE=%g. %s\n", requests, scale,
              g_fine ? "All within 20 %." : "NOT all within 20 %.");
  return g_fine ? 0 : 1;
}
