// example_throughput: a job that keeps the GPU's queue full, as training does: an endless row of kernels, with the
// CPU never more than two iterations ahead. It reports iterations per second.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/cuda.h"
#include "common/program.h"

namespace sluice::example {
namespace {

constexpr char kProgram[] = "example_throughput";

// Kernel times in microseconds like those of a training step: most short, a few long; 1 ms a round.
constexpr std::array<double, 16> kKernelUs = {10, 40, 20, 80, 15, 120, 30, 60, 25, 200, 10, 90, 50, 150, 20, 80};

struct Options {
  double kernel_us = 0;
  int sync_every = static_cast<int>(kKernelUs.size());
  double seconds = std::numeric_limits<double>::infinity();
  std::uint64_t iterations = std::numeric_limits<std::uint64_t>::max();
  unsigned blocks = 0;
  bool graph = false;
  bool json = false;
};

constexpr std::size_t kAhead = 2;  // iterations that may be queued, so that the GPU never waits for the CPU

// The kernels of one iteration. `next` is the place in the row of times.
Status launch_kernels(const Options& options, const Device& device, std::size_t* next) {
  for (int i = 0; i < options.sync_every; ++i) {
    double us = options.kernel_us > 0 ? options.kernel_us : kKernelUs[(*next)++ % kKernelUs.size()];
    CUresult result = launch_spin(device, options.blocks, static_cast<std::uint64_t>(us * 1e3));
    if (Status s = check(device, result, "cuLaunchKernel"); !s.ok()) return s;
  }
  return {};
}

// The same, captured into a graph.
Status capture_kernels(const Options& options, const Device& device, CUgraphExec* out) {
  const Driver& api = device.api;
  CUgraph graph = nullptr;
  std::size_t first = 0;
  CUresult result = api.begin_capture(device.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  if (Status s = check(device, result, "cuStreamBeginCapture"); !s.ok()) return s;
  if (Status s = launch_kernels(options, device, &first); !s.ok()) return s;
  if (Status s = check(device, api.end_capture(device.stream, &graph), "cuStreamEndCapture"); !s.ok()) return s;
  return check(device, api.graph_instantiate(out, graph, 0), "cuGraphInstantiateWithFlags");
}

// Runs iterations of `sync_every` kernels until told to stop. An iteration's latency is the time since the one before
// it was seen done, which is what it took while the queue is full.
Status work(const Options& options, const Device& device, std::uint64_t* done, double* seconds) {
  const Driver& api = device.api;
  LatencyFile file;
  if (Status s = file.open(); !s.ok()) return s;
  std::array<CUevent, kAhead + 1> events;
  for (CUevent& event : events) {
    if (Status s = check(device, api.event_create(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"); !s.ok()) return s;
  }
  CUgraphExec graph = nullptr;
  if (options.graph) {
    if (Status s = capture_kernels(options, device, &graph); !s.ok()) return s;
  }
  DeviceClock clock(device.real_per_shown);
  std::uint64_t submitted = 0;
  std::size_t kernel = 0;
  double last_us = 0;
  *done = 0;
  auto wait_for_one = [&]() -> Status {
    if (Status s = check(device, api.event_synchronize(events[*done % events.size()]), "cuEventSynchronize"); !s.ok()) {
      return s;
    }
    ++*done;
    double now = clock.now_us();
    file.add(now - last_us);
    last_us = now;
    return file.flush();
  };
  while (!stop_requested() && submitted < options.iterations && clock.now_us() < options.seconds * 1e6) {
    Status launched = graph == nullptr ? launch_kernels(options, device, &kernel)
                                       : check(device, api.graph_launch(graph, device.stream), "cuGraphLaunch");
    if (!launched.ok()) return launched;
    CUevent event = events[submitted % events.size()];
    if (Status s = check(device, api.event_record(event, device.stream), "cuEventRecord"); !s.ok()) return s;
    ++submitted;
    if (submitted - *done > kAhead) {
      if (Status s = wait_for_one(); !s.ok()) return s;
    }
  }
  while (*done < submitted) {
    if (Status s = wait_for_one(); !s.ok()) return s;
  }
  *seconds = clock.now_us() * 1e-6;
  return {};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Keeps the GPU busy with an endless queue of kernels and reports iterations per second.\n"
      "SLUICE_LATENCY_FILE names a file to append each iteration's time to, in microseconds. On the emulator\n"
      "every time is emulated time: real time divided by SLUICE_EMU_SCALE. SIGTERM ends it with its summary.",
      kProgram);
  app.add_option("--kernel-us", options.kernel_us, "Time of each kernel, in microseconds (default: a mix of 10 to 200)")
      ->check(CLI::Range(0.1, 1e7));
  app.add_option("--sync-every", options.sync_every, "Kernels in an iteration")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations, "Stop after this many iterations (default: no limit)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "Stop after this long (default: no limit)")->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks, "Blocks of each kernel (default: one for each multiprocessor)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--graph", options.graph, "Capture an iteration's kernels once and launch them as a CUDA graph");
  app.add_flag("--json", options.json, "Print the summary as one line of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }

  Device device;
  if (Status s = open_device(&device); !s.ok()) return fail(kProgram, s);
  if (options.blocks == 0) options.blocks = static_cast<unsigned>(device.multiprocessors);
  stop_on_signals();
  std::uint64_t done = 0;
  double seconds = 0;
  if (Status s = work(options, device, &done, &seconds); !s.ok()) return fail(kProgram, s);
  double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  if (options.json) {
    nlohmann::ordered_json line = {{"program", kProgram}, {"device", device.name}, {"simulated", device.simulated},
                                   {"iterations", done},  {"seconds", seconds},    {"throughput_per_s", rate}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%s%s: %llu iterations of %d kernels in %.2f s, %.1f per s\n", device.name.c_str(),
                device.simulated ? " (simulated)" : "", static_cast<unsigned long long>(done), options.sync_every,
                seconds, rate);
  }
  return kExitOk;
}

}  // namespace
}  // namespace sluice::example

int main(int argc, char** argv) { return sluice::example::run(argc, argv); }
