// bench_pool: what a program allocated and freed, replayed through the pool and through the driver's allocators.
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "sluice/driver.h"
#include "sluice/memory.h"
#include "trace.h"

namespace sluice::bench {
namespace {

constexpr char kProgram[] = "bench_pool";

struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuDeviceGet) device;
  decltype(&::cuDeviceGetName) device_name;
  decltype(&::cuDevicePrimaryCtxRetain) retain;
  decltype(&::cuCtxSetCurrent) set_current;
  decltype(&::cuCtxSynchronize) synchronize;
  decltype(&::cuStreamCreate) stream_create;
  CUresult (*allocate)(CUdeviceptr*, std::size_t);
  CUresult (*free)(CUdeviceptr);
  decltype(&::cuMemPoolCreate) pool_create;
  decltype(&::cuMemPoolSetAttribute) pool_set;
  decltype(&::cuMemPoolDestroy) pool_destroy;
  decltype(&::cuMemAllocFromPoolAsync) pool_allocate;
  decltype(&::cuMemFreeAsync) pool_free;
};

struct Machine {
  Driver driver = {};
  std::string device;
  bool simulated = false;
  std::vector<CUstream> streams;
};

Status open(std::uint32_t streams, Machine* machine) {
  Result<void*> library = driver::open_process_library();
  if (!library.ok()) return library.status();
  Driver& calls = machine->driver;
  bool complete = true;
  const auto look = [&](const char* name, auto* out) {
    *out = driver::symbol<std::remove_reference_t<decltype(*out)>>(*library, name);
    complete = complete && *out != nullptr;
  };
  look("cuInit", &calls.init);
  look("cuDeviceGet", &calls.device);
  look("cuDeviceGetName", &calls.device_name);
  look("cuDevicePrimaryCtxRetain", &calls.retain);
  look("cuCtxSetCurrent", &calls.set_current);
  look("cuCtxSynchronize", &calls.synchronize);
  look("cuStreamCreate", &calls.stream_create);
  look("cuMemAlloc_v2", &calls.allocate);
  look("cuMemFree_v2", &calls.free);
  look("cuMemPoolCreate", &calls.pool_create);
  look("cuMemPoolSetAttribute", &calls.pool_set);
  look("cuMemPoolDestroy", &calls.pool_destroy);
  look("cuMemAllocFromPoolAsync", &calls.pool_allocate);
  look("cuMemFreeAsync", &calls.pool_free);
  if (!complete) return Status::error(Code::kUnavailable, "the driver is older than CUDA 11.2");
  CUdevice device = 0;
  CUcontext context = nullptr;
  char name[256] = {};
  if (calls.init(0) != CUDA_SUCCESS || calls.device(&device, 0) != CUDA_SUCCESS ||
      calls.device_name(name, sizeof name, device) != CUDA_SUCCESS || calls.retain(&context, device) != CUDA_SUCCESS ||
      calls.set_current(context) != CUDA_SUCCESS)
    return Status::error(Code::kUnavailable, "no GPU that can be used");
  machine->device = name;
  machine->simulated = driver::is_emulator(*library);
  for (std::uint32_t i = 0; i < streams; ++i) {
    CUstream stream = nullptr;
    if (calls.stream_create(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
      return Status::error(Code::kInternal, "cuStreamCreate");
    machine->streams.push_back(stream);
  }
  return {};
}

struct Allocator {
  std::function<CUdeviceptr(std::uint64_t, CUstream)> allocate;  // 0 when it has none
  std::function<void(CUdeviceptr, CUstream)> free;
};

// Nanoseconds for all events, or nothing if an allocation failed; then the blocks are given back.
std::optional<std::uint64_t> replay(const Trace& trace, const Machine& machine, const Allocator& allocator) {
  std::vector<CUdeviceptr> blocks(trace.blocks);
  const std::uint64_t begun = now_ns();
  for (const Event& event : trace.events) {
    CUstream stream = machine.streams[event.stream];
    CUdeviceptr& block = blocks[event.block];
    if (event.bytes == 0) {
      allocator.free(block, stream);
      block = 0;
    } else if ((block = allocator.allocate(event.bytes, stream)) == 0) {
      for (CUdeviceptr left : blocks) {
        if (left != 0) allocator.free(left, machine.streams[0]);
      }
      return std::nullopt;
    }
  }
  return now_ns() - begun;
}

Allocator of_pool(memory::Pool* pool) {
  return {[pool](std::uint64_t bytes, CUstream stream) {
            Result<CUdeviceptr> block = pool->allocate(bytes, stream);
            return block.ok() ? *block : 0;
          },
          [pool](CUdeviceptr block, CUstream stream) { static_cast<void>(pool->free(block, stream).ok()); }};
}

Allocator of_driver(const Driver& driver) {
  return {[&driver](std::uint64_t bytes, CUstream) {
            CUdeviceptr block = 0;
            return driver.allocate(&block, bytes) == CUDA_SUCCESS ? block : 0;
          },
          [&driver](CUdeviceptr block, CUstream) { driver.free(block); }};
}

Allocator of_driver_pool(const Driver& driver, CUmemoryPool pool) {
  return {[&driver, pool](std::uint64_t bytes, CUstream stream) {
            CUdeviceptr block = 0;
            return driver.pool_allocate(&block, bytes, pool, stream) == CUDA_SUCCESS ? block : 0;
          },
          [&driver](CUdeviceptr block, CUstream stream) { driver.pool_free(block, stream); }};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The smallest capacity, to a chunk, that replays the trace.
Result<std::uint64_t> smallest_capacity(const Trace& trace, const Machine& machine) {
  constexpr std::uint64_t kStep = 2 << 20;
  const auto replays = [&](std::uint64_t steps) {
    Result<std::unique_ptr<memory::Pool>> pool = memory::Pool::create({steps * kStep, false});
    return pool.ok() && replay(trace, machine, of_pool(pool->get())).has_value();
  };
  std::uint64_t fails = trace.peak_bytes / kStep - (trace.peak_bytes % kStep == 0 ? 1 : 0);  // less than the peak
  std::uint64_t does = fails + 1;
  while (!replays(does)) {
    fails = does;
    does += does / 2 + 1;
    if (does * kStep > 4 * trace.peak_bytes + (64 << 20))
      return Status::error(Code::kResourceExhausted, "%s does not replay in four times its peak", trace.name.c_str());
  }
  while (does - fails > 1) {
    const std::uint64_t middle = fails + (does - fails) / 2;
    (replays(middle) ? does : fails) = middle;
  }
  return does * kStep;
}

struct Row {
  std::string name, rival;
  std::uint64_t events = 0;
  double ours_us = 0, rival_us = 0, ratio = 0, ratio_min = 0, ratio_max = 0;
};

// Both rivals and the pool in turn, so that a drift of the machine meets all of them.
Result<std::vector<Row>> measure_times(const Trace& trace, const Machine& machine, int repeats, bool with_malloc) {
  Result<std::unique_ptr<memory::Pool>> pool =
      memory::Pool::create({trace.peak_bytes + trace.peak_bytes / 4 + (64 << 20), false});
  if (!pool.ok()) return pool.status();
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool driver_pool = nullptr;
  std::uint64_t threshold = ~std::uint64_t{0};  // keep all memory
  if (machine.driver.pool_create(&driver_pool, &properties) != CUDA_SUCCESS ||
      machine.driver.pool_set(driver_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuMemPoolCreate");
  std::vector<std::pair<std::string, Allocator>> all = {
      {"pool", of_pool(pool->get())}, {"cuMemAllocAsync", of_driver_pool(machine.driver, driver_pool)}};
  if (with_malloc) all.emplace_back("cuMemAlloc", of_driver(machine.driver));
  std::vector<std::vector<double>> times(all.size());
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first warms all of them up
    for (std::size_t i = 0; i < all.size(); ++i) {
      machine.driver.synchronize();
      const std::optional<std::uint64_t> ns = replay(trace, machine, all[i].second);
      if (!ns)
        return Status::error(Code::kResourceExhausted, "%s: %s failed", trace.name.c_str(), all[i].first.c_str());
      if (repeat >= 0) times[i].push_back(static_cast<double>(*ns) / 1000 / static_cast<double>(trace.events.size()));
    }
  }
  machine.driver.synchronize();
  machine.driver.pool_destroy(driver_pool);
  std::vector<Row> rows;
  for (std::size_t i = 1; i < all.size(); ++i) {
    Row row;
    row.name = trace.name;
    row.rival = all[i].first;
    row.events = trace.events.size();
    row.ours_us = median(times[0]);
    row.rival_us = median(times[i]);
    std::vector<double> ratios;
    for (std::size_t run = 0; run < times[0].size(); ++run) ratios.push_back(times[0][run] / times[i][run]);
    row.ratio = median(ratios);
    row.ratio_min = *std::min_element(ratios.begin(), ratios.end());
    row.ratio_max = *std::max_element(ratios.begin(), ratios.end());
    rows.push_back(row);
  }
  return rows;
}

int fail(const Status& status) {
  std::fprintf(stderr, "%s: %s\n", kProgram, status.message());
  return exit_code(status);
}

int run(int argc, char** argv) {
  CLI::App app("Replays what programs allocated and freed through Sluice's pool and the driver's allocators.",
               kProgram);
  std::vector<std::string> paths;
  int repeats = 7;
  bool as_json = false, without_malloc = false;
  app.add_option("traces", paths, "Traces, as docs/benchmarks.md describes them; generated ones if none")
      ->option_text("TRACE...");
  app.add_option("-n,--repeats", repeats, "Replays of each")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--without-malloc", without_malloc, "Without cuMemAlloc, which waits for the device at each free");
  app.add_flag("--json", as_json, "As JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  std::vector<Trace> traces;
  for (const std::string& path : paths) {
    Result<Trace> trace = read_trace(path);
    if (!trace.ok()) return fail(trace.status());
    traces.push_back(std::move(*trace));
  }
  if (paths.empty()) {
    for (const std::string& kind : generated_kinds()) traces.push_back(generate_trace(kind));
  }
  std::uint32_t streams = 1;
  for (const Trace& trace : traces) streams = std::max(streams, trace.streams);
  Machine machine;
  if (Status status = open(streams, &machine); !status.ok()) return fail(status);

  nlohmann::json rows = nlohmann::json::array(), capacities = nlohmann::json::array();
  if (!as_json) {
    std::printf("%s%s; us a call, medians of %d\n", machine.device.c_str(),
                machine.simulated ? " (simulated: the rivals' times are the emulator's)" : "", repeats);
    std::printf("%-16s %-16s %8s %8s %8s %6s  %s\n", "TRACE", "RIVAL", "CALLS", "POOL", "RIVAL", "RATIO", "RUNS");
  }
  for (const Trace& trace : traces) {
    Result<std::vector<Row>> times = measure_times(trace, machine, repeats, !without_malloc);
    if (!times.ok()) return fail(times.status());
    for (const Row& row : *times) {
      rows.push_back({{"name", row.name},
                      {"rival", row.rival},
                      {"size", row.events},
                      {"ours_us", row.ours_us},
                      {"rival_us", row.rival_us},
                      {"ratio", row.ratio},
                      {"ratio_min", row.ratio_min},
                      {"ratio_max", row.ratio_max}});
      if (!as_json) {
        std::printf("%-16s %-16s %8zu %8.3f %8.3f %6.3f  %.3f to %.3f\n", row.name.c_str(), row.rival.c_str(),
                    static_cast<std::size_t>(row.events), row.ours_us, row.rival_us, row.ratio, row.ratio_min,
                    row.ratio_max);
      }
    }
  }
  for (const Trace& trace : traces) {
    Result<std::uint64_t> capacity = smallest_capacity(trace, machine);
    if (!capacity.ok()) return fail(capacity.status());
    const double ratio = static_cast<double>(*capacity) / static_cast<double>(trace.peak_bytes);
    capacities.push_back(
        {{"name", trace.name}, {"capacity_bytes", *capacity}, {"peak_bytes", trace.peak_bytes}, {"ratio", ratio}});
    if (!as_json) {
      std::printf("%-16s replays in %s: %.3f of its peak, %s\n", trace.name.c_str(), format_bytes(*capacity).c_str(),
                  ratio, format_bytes(trace.peak_bytes).c_str());
    }
  }
  if (as_json) {
    std::printf(
        "%s\n",
        nlohmann::json(
            {{"device", machine.device}, {"simulated", machine.simulated}, {"rows", rows}, {"capacities", capacities}})
            .dump(2)
            .c_str());
  }
  return kExitOk;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::run(argc, argv); }
