// example_latency: a service that answers requests which come at random times, and measures how long each one takes
// from its arrival. A request copies its input in, runs a row of kernels, copies the result out and waits for it.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "common/cuda.h"
#include "common/program.h"

namespace sluice::example {
namespace {

constexpr char kProgram[] = "example_latency";
constexpr float kFactor = 2.0f;

struct Options {
  double rate = 100;
  int kernels = 10;
  double work_us = 1000;
  double seconds = std::numeric_limits<double>::infinity();
  std::uint64_t requests = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t warmup = 10;
  std::uint64_t seed = 1;
  unsigned blocks = 0;
  unsigned elements = 16384;
  bool check = false;
  bool json = false;
};

// The input and output of a request. Host memory is pinned; input is x followed by y, `elements` floats each.
struct Buffers {
  float* input = nullptr;
  float* output = nullptr;
  CUdeviceptr device = 0;
};

class Service {
 public:
  Service(const Options& options, Device& device) : options_(options), device_(device) {}

  Status prepare() {
    const Driver& api = device_.api;
    std::size_t bytes = options_.elements * sizeof(float);
    void* host = nullptr;
    if (Status s = check(device_, api.mem_alloc_host(&host, 3 * bytes), "cuMemAllocHost"); !s.ok()) return s;
    buffers_.input = static_cast<float*>(host);
    buffers_.output = buffers_.input + 2 * options_.elements;
    if (Status s = check(device_, api.mem_alloc(&buffers_.device, 2 * bytes), "cuMemAlloc"); !s.ok()) return s;
    for (unsigned i = 0; i < options_.elements; ++i) {
      buffers_.input[i] = static_cast<float>(i % 1024);
      buffers_.input[options_.elements + i] = static_cast<float>(i % 7);
    }
    return {};
  }

  // Answers one request. Errors: kInternal; with --check also when the result is wrong.
  Status answer(std::uint64_t request) {
    const Driver& api = device_.api;
    std::size_t bytes = options_.elements * sizeof(float);
    CUdeviceptr x = buffers_.device;
    CUdeviceptr y = buffers_.device + bytes;
    buffers_.input[0] = static_cast<float>(request % 4096);
    if (Status s =
            check(device_, api.copy_to_device(x, buffers_.input, 2 * bytes, device_.stream), "cuMemcpyHtoDAsync");
        !s.ok()) {
      return s;
    }
    auto each_ns = static_cast<std::uint64_t>(options_.work_us * 1e3 / options_.kernels);
    for (int i = 0; i < options_.kernels; ++i) {
      if (Status s = check(device_, launch_spin(device_, options_.blocks, each_ns), "cuLaunchKernel"); !s.ok())
        return s;
    }
    if (Status s = check(device_, launch_saxpy(device_, options_.elements, kFactor, x, y), "cuLaunchKernel"); !s.ok()) {
      return s;
    }
    if (Status s = check(device_, api.copy_to_host(buffers_.output, y, bytes, device_.stream), "cuMemcpyDtoHAsync");
        !s.ok()) {
      return s;
    }
    if (Status s = check(device_, api.stream_synchronize(device_.stream), "cuStreamSynchronize"); !s.ok()) return s;
    return options_.check ? verify(request) : Status();
  }

 private:
  Status verify(std::uint64_t request) const {
    for (unsigned i = 0; i < options_.elements; ++i) {
      float want = kFactor * buffers_.input[i] + buffers_.input[options_.elements + i];
      if (buffers_.output[i] != want) {  // exact: whole numbers below 2^24
        return Status::error(Code::kInternal, "request %llu: element %u is %g, not %g",
                             static_cast<unsigned long long>(request), i, static_cast<double>(buffers_.output[i]),
                             static_cast<double>(want));
      }
    }
    return {};
  }

  const Options& options_;
  Device& device_;
  Buffers buffers_;
};

struct Measured {
  std::vector<double> latency_us;  // from the arrival
  std::vector<double> service_us;  // from the start of the work
  double seconds = 0;
};

Status serve(const Options& options, const Device& device, Service* service, Measured* measured) {
  LatencyFile file;
  if (Status s = file.open(); !s.ok()) return s;
  for (std::uint64_t i = 0; i < options.warmup && !stop_requested(); ++i) {
    if (Status s = service->answer(i); !s.ok()) return s;
  }
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap_us(options.rate * 1e-6);
  DeviceClock clock(device.real_per_shown);
  double arrival = 0;
  for (std::uint64_t i = 0; i < options.requests; ++i) {
    arrival += gap_us(random);
    if (arrival > options.seconds * 1e6) break;
    clock.wait_until_us(arrival);
    if (stop_requested()) break;
    double start = clock.now_us();
    if (Status s = service->answer(i); !s.ok()) return s;
    double end = clock.now_us();
    measured->latency_us.push_back(end - arrival);
    measured->service_us.push_back(end - start);
    file.add(end - arrival);
    if (Status s = file.flush(); !s.ok()) return s;  // at once: who reads the file counts lines over time
  }
  measured->seconds = clock.now_us() * 1e-6;
  return {};
}

void print(const Options& options, const Device& device, const Measured& measured) {
  std::size_t count = measured.latency_us.size();
  double p50 = percentile(measured.latency_us, 0.5);
  double p99 = percentile(measured.latency_us, 0.99);
  double service = percentile(measured.service_us, 0.5);
  double rate = measured.seconds > 0 ? static_cast<double>(count) / measured.seconds : 0;
  if (options.json) {
    nlohmann::ordered_json line = {
        {"program", kProgram},     {"device", device.name}, {"simulated", device.simulated}, {"requests", count},
        {"p50_us", p50},           {"p99_us", p99},         {"service_p50_us", service},     {"throughput_per_s", rate},
        {"checked", options.check}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf("%s%s: %zu requests%s, %.1f per s; latency p50 %.0f us, p99 %.0f us; service p50 %.0f us\n",
              device.name.c_str(), device.simulated ? " (simulated)" : "", count, options.check ? ", all correct" : "",
              rate, p50, p99, service);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Answers requests on the GPU that arrive at random times and reports their latencies.\n"
      "SLUICE_LATENCY_FILE names a file to append each latency to, in microseconds. On the emulator every\n"
      "time is emulated time: real time divided by SLUICE_EMU_SCALE.",
      kProgram);
  app.add_option("--rate", options.rate, "Requests per second, Poisson arrivals")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--kernels", options.kernels, "Kernels in a request")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--work-us", options.work_us, "GPU time of a request's kernels, in microseconds")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  app.add_option("--requests", options.requests, "Stop after this many requests (default: no limit)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "Stop after this long (default: no limit)")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Requests answered first and not reported")->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the arrival times")->capture_default_str();
  app.add_option("--blocks", options.blocks, "Blocks of each kernel (default: one for each multiprocessor)")
      ->check(CLI::PositiveNumber);
  app.add_option("--elements", options.elements, "Floats copied in, computed on and copied out")
      ->check(CLI::Range(1u, 1u << 26))
      ->capture_default_str();
  app.add_flag("--check", options.check, "Verify every result; exit with 1 if one is wrong");
  app.add_flag("--json", options.json, "Print the summary as one line of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }

  Device device;
  if (Status s = open_device(&device); !s.ok()) return fail(kProgram, s);
  if (options.blocks == 0) options.blocks = static_cast<unsigned>(device.multiprocessors);
  Service service(options, device);
  if (Status s = service.prepare(); !s.ok()) return fail(kProgram, s);
  stop_on_signals();
  Measured measured;
  if (Status s = serve(options, device, &service, &measured); !s.ok()) return fail(kProgram, s);
  print(options, device, measured);
  return kExitOk;
}

}  // namespace
}  // namespace sluice::example

int main(int argc, char** argv) { return sluice::example::run(argc, argv); }
