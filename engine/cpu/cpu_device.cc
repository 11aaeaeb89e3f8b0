#include "cpu/cpu_device.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "cpu/program.h"
#include "cpu/thread_pool.h"

namespace sluice::engine {
namespace cpu {
namespace {

constexpr int kMostThreads = 1024;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : pool_(std::make_shared<ThreadPool>(threads)) {}
  std::string_view name() const override { return "cpu"; }
  int threads() const override { return pool_->threads(); }
  Result<std::unique_ptr<Program>> compile(const Graph& graph, PackedWeights& packed, bool reference) override {
    return CpuProgram::compile(graph, packed, pool_, reference);
  }

 private:
  std::shared_ptr<ThreadPool> pool_;  // programs may outlive the device
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
