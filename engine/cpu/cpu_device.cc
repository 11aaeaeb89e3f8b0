#include "cpu/cpu_device.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "cpu/program.h"

namespace sluice::engine {
namespace cpu {
namespace {

constexpr int kMostThreads = 1024;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {}
  std::string_view name() const override { return "cpu"; }
  int threads() const override { return threads_; }
  Result<std::unique_ptr<Program>> compile(const Graph& graph, PackedWeights& packed) override {
    return CpuProgram::compile(graph, packed, threads_);
  }

 private:
  int threads_;
};

}  // namespace

int physical_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  // Hardware threads of one core name the same siblings.
  std::set<std::string> cores;
  int logical = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) {
      ++logical;
      std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list");
      std::string siblings;
      if (std::getline(file, siblings)) {
        cores.insert(siblings);
      }
    }
  }
  return std::max(1, cores.empty() ? logical : static_cast<int>(cores.size()));
}

Result<std::shared_ptr<Device>> open(int threads) {
  if (threads < 0 || threads > kMostThreads) {
    return Status::error(Code::kInvalidArgument, "%d threads; use 0 (one a physical core) to %d", threads,
                         kMostThreads);
  }
  return std::shared_ptr<Device>(std::make_shared<CpuDevice>(threads == 0 ? physical_cores() : threads));
}

}  // namespace cpu

Result<std::shared_ptr<Device>> open_device(std::string_view name, int threads) {
  if (name == "cpu") {
    return cpu::open(threads);
  }
  return Status::error(Code::kUnavailable, "there is no device '%.*s'; use 'cpu'", static_cast<int>(name.size()),
                       name.data());
}

}  // namespace sluice::engine
