// bench_graph: pipelines against CUDA graphs written by hand, of the same kernels, interleaved in one run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "common/kernels.h"
#include "sluice/base/clock.h"
#include "sluice/driver.h"
#include "sluice/graph.h"

namespace sluice::bench {
namespace {

using graph::Buffer;
using graph::Pipeline;

struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuDeviceGet) device;
  decltype(&::cuDeviceGetName) device_name;
  decltype(&::cuDevicePrimaryCtxRetain) retain;
  decltype(&::cuCtxSetCurrent) set_current;
  decltype(&::cuModuleLoadData) load_module;
  decltype(&::cuModuleGetFunction) function;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamSynchronize) synchronize;
  CUresult (*allocate)(CUdeviceptr*, std::size_t);
  decltype(&::cuGraphCreate) graph_create;
  decltype(&::cuGraphDestroy) graph_destroy;
  CUresult (*add_kernel)(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_KERNEL_NODE_PARAMS_v1*);
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  decltype(&::cuGraphLaunch) launch;
};

struct Machine {
  Driver driver = {};
  std::string device;
  bool simulated = false;
  CUstream stream = nullptr;
  CUfunction saxpy = nullptr;
  CUdeviceptr memory = 0;
};

constexpr std::uint32_t kFloats = 256;  // of one kernel: so little that its launch is what costs
constexpr std::uint64_t kBytes = 4 * kFloats;

Status open(std::uint64_t bytes, Machine* machine) {
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
  look("cuModuleLoadData", &calls.load_module);
  look("cuModuleGetFunction", &calls.function);
  look("cuStreamCreate", &calls.stream_create);
  look("cuStreamSynchronize", &calls.synchronize);
  look("cuMemAlloc_v2", &calls.allocate);
  look("cuGraphCreate", &calls.graph_create);
  look("cuGraphDestroy", &calls.graph_destroy);
  look("cuGraphAddKernelNode", &calls.add_kernel);
  look("cuGraphInstantiateWithFlags", &calls.instantiate);
  look("cuGraphLaunch", &calls.launch);
  if (!complete) return Status::error(Code::kUnavailable, "the driver is older than CUDA 11.4");
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  char name[256] = {};
  if (calls.init(0) != CUDA_SUCCESS || calls.device(&device, 0) != CUDA_SUCCESS ||
      calls.device_name(name, sizeof name, device) != CUDA_SUCCESS || calls.retain(&context, device) != CUDA_SUCCESS ||
      calls.set_current(context) != CUDA_SUCCESS)
    return Status::error(Code::kUnavailable, "no GPU that can be used");
  if (calls.load_module(&module, example::kKernels) != CUDA_SUCCESS ||
      calls.function(&machine->saxpy, module, "saxpy") != CUDA_SUCCESS ||
      calls.stream_create(&machine->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
      calls.allocate(&machine->memory, bytes) != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "the device refuses the kernels, a stream or %llu bytes",
                         static_cast<unsigned long long>(bytes));
  machine->device = name;
  machine->simulated = driver::is_emulator(*library);
  return {};
}

// Stage i of a pipeline reads buffer i and updates buffer i + width: `width` chains side by side, or one.
struct Shape {
  std::uint32_t stages, width;
  std::uint32_t buffers() const { return stages + width; }
};

Status declare(const Machine& machine, const Shape& shape, std::unique_ptr<Pipeline>* out) {
  Result<std::unique_ptr<Pipeline>> made = Pipeline::create();
  if (!made.ok()) return made.status();
  Pipeline& pipeline = **made;
  std::vector<Buffer> buffers;
  for (std::uint32_t b = 0; b < shape.buffers(); ++b)
    buffers.push_back(pipeline.add_buffer("buffer", machine.memory + b * kBytes, kBytes));
  for (std::uint32_t s = 0; s < shape.stages; ++s) {
    graph::Kernel kernel;
    kernel.function = machine.saxpy;
    kernel.block[0] = kFloats;
    kernel.arguments = {kFloats, 1.0F, buffers[s], buffers[s + shape.width]};
    pipeline.add_kernel("saxpy", std::move(kernel), {reads(buffers[s]), updates(buffers[s + shape.width])});
  }
  *out = std::move(*made);
  return {};
}

// The same graph as somebody would write it who knows the dependencies.
bool write_by_hand(const Machine& machine, const Shape& shape, CUgraph* graph) {
  if (machine.driver.graph_create(graph, 0) != CUDA_SUCCESS) return false;
  std::vector<CUgraphNode> nodes(shape.stages);
  for (std::uint32_t s = 0; s < shape.stages; ++s) {
    std::uint32_t n = kFloats;
    float a = 1;
    CUdeviceptr x = machine.memory + s * kBytes, y = machine.memory + (s + shape.width) * kBytes;
    void* arguments[] = {&n, &a, &x, &y};
    CUDA_KERNEL_NODE_PARAMS_v1 kernel = {};
    kernel.func = machine.saxpy;
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.blockDimX = kFloats;
    kernel.kernelParams = arguments;
    const CUgraphNode* before = s < shape.width ? nullptr : &nodes[s - shape.width];
    if (machine.driver.add_kernel(&nodes[s], *graph, before, before == nullptr ? 0 : 1, &kernel) != CUDA_SUCCESS)
      return false;
  }
  return true;
}

struct Row {
  std::string name, rival;
  std::uint32_t size = 0;
  std::vector<double> ours, theirs;
};

double quantile(std::vector<double> values, double q) {
  const auto at = std::lround(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

template <class F>
double microseconds(F work) {
  const std::uint64_t begun = now_ns();
  work();
  return static_cast<double>(now_ns() - begun) / 1e3;
}

// Until the work is done, and the thread's part of it: submitting.
Status measure_launches(const Machine& machine, const Shape& shape, int repeats, std::vector<Row>* rows) {
  std::unique_ptr<Pipeline> pipeline;
  if (Status s = declare(machine, shape, &pipeline); !s.ok()) return s;
  if (Status s = pipeline->build(); !s.ok()) return s;
  if (pipeline->stats().edges != shape.stages - shape.width)
    return Status::error(Code::kInternal, "%zu dependencies were derived, %u are there", pipeline->stats().edges,
                         shape.stages - shape.width);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (!write_by_hand(machine, shape, &graph) || machine.driver.instantiate(&exec, graph, 0) != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "the driver refuses the graph");
  const std::string width = shape.width == 1 ? "" : "_wide";
  Row whole{"launch" + width, "cuda_graph", shape.stages, {}, {}},
      submit{"submit" + width, "cuda_graph", shape.stages, {}, {}};
  Status failed;
  for (int i = -3; i < repeats; ++i) {
    for (const bool ours : {i % 2 == 0, i % 2 != 0}) {
      double submitted = 0;
      const double done = microseconds([&] {
        submitted = microseconds([&] {
          if (!ours) {
            if (machine.driver.launch(exec, machine.stream) != CUDA_SUCCESS)
              failed = Status::error(Code::kInternal, "cuGraphLaunch");
          } else if (Status s = pipeline->launch(machine.stream); !s.ok()) {
            failed = s;
          }
        });
        machine.driver.synchronize(machine.stream);
      });
      if (i < 0) continue;  // the first launches upload the graphs
      (ours ? whole.ours : whole.theirs).push_back(done);
      (ours ? submit.ours : submit.theirs).push_back(submitted);
    }
  }
  rows->push_back(std::move(whole));
  rows->push_back(std::move(submit));
  return failed;
}

// From declarations to dependencies, against adding the nodes to a graph by hand; neither instantiates.
Status measure_builds(const Machine& machine, const Shape& shape, int repeats, std::vector<Row>* rows) {
  Row declared{"declare_and_plan", "add_nodes_by_hand", shape.stages, {}, {}},
      planned{"plan", "add_nodes_by_hand", shape.stages, {}, {}};
  for (int i = -1; i < repeats; ++i) {
    std::unique_ptr<Pipeline> pipeline;
    Status failed;
    const double declare_us = microseconds([&] { failed = declare(machine, shape, &pipeline); });
    if (!failed.ok()) return failed;
    const double plan_us = microseconds([&] { failed = pipeline->plan(); });
    if (!failed.ok()) return failed;
    CUgraph graph = nullptr;
    bool written = false;
    const double by_hand = microseconds([&] { written = write_by_hand(machine, shape, &graph); });
    if (!written) return Status::error(Code::kInternal, "the driver refuses the graph");
    machine.driver.graph_destroy(graph);
    if (i < 0) continue;
    declared.ours.push_back(declare_us + plan_us);
    planned.ours.push_back(plan_us);
    declared.theirs.push_back(by_hand);
    planned.theirs.push_back(by_hand);
  }
  rows->push_back(std::move(declared));
  rows->push_back(std::move(planned));
  return {};
}

int report(const Machine& machine, const std::vector<Row>& rows, bool as_json) {
  nlohmann::json json = {
      {"device", machine.device}, {"simulated", machine.simulated}, {"rows", nlohmann::json::array()}};
  if (!as_json) {
    std::printf("%s%s: medians, us (from the 5th to the 95th of a hundred)\n", machine.device.c_str(),
                machine.simulated ? ", simulated" : "");
    std::printf("%-18s %-18s %6s %28s %28s %6s\n", "", "rival", "size", "ours", "rival", "ratio");
  }
  for (const Row& row : rows) {
    const double ours = quantile(row.ours, 0.5), theirs = quantile(row.theirs, 0.5);
    const double our_low = quantile(row.ours, 0.05), our_high = quantile(row.ours, 0.95);
    const double low = quantile(row.theirs, 0.05), high = quantile(row.theirs, 0.95);
    json["rows"].push_back({{"name", row.name},
                            {"rival", row.rival},
                            {"size", row.size},
                            {"ours_us", ours},
                            {"rival_us", theirs},
                            {"ratio", ours / theirs},
                            {"ours_p5_us", our_low},
                            {"ours_p95_us", our_high},
                            {"rival_p5_us", low},
                            {"rival_p95_us", high}});
    if (!as_json)
      std::printf("%-18s %-18s %6u %9.1f (%7.1f %8.1f) %9.1f (%7.1f %8.1f) %6.3f\n", row.name.c_str(),
                  row.rival.c_str(), row.size, ours, our_low, our_high, theirs, low, high, ours / theirs);
  }
  if (as_json) std::printf("%s\n", json.dump(2).c_str());
  return kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app("Pipelines against CUDA graphs written by hand, of the same kernels, interleaved in one run.",
               "bench_graph");
  std::uint32_t stages = 1000;
  int repeats = 100;
  bool as_json = false;
  app.add_option("--stages", stages, "kernels in a pipeline")->capture_default_str()->check(CLI::Range(8, 32768));
  app.add_option("--repeats", repeats, "measurements of each")->capture_default_str()->check(CLI::Range(1, 100000));
  app.add_flag("--json", as_json, "print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  Machine machine;
  std::vector<Row> rows;
  Status status = open((stages + 8) * kBytes, &machine);
  for (const std::uint32_t width : {1U, 8U}) {
    if (status.ok()) status = measure_launches(machine, {stages, width}, repeats, &rows);
  }
  if (status.ok()) status = measure_builds(machine, {stages, 8}, repeats, &rows);
  if (!status.ok()) {
    std::fprintf(stderr, "bench_graph: %s\n", status.message());
    return exit_code(status);
  }
  return report(machine, rows, as_json);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::run(argc, argv); }
