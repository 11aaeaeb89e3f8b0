#include "machine.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <numeric>

#include "sluice/base/units.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "sluice/driver.h"

namespace sluice::cli {
namespace {

// Priorities of the jobs that run on each GPU now, from its board if it has one, and whether it is out of use.
void add_jobs(std::vector<Candidate>* gpus) {
  char runtime_dir[PATH_MAX];
  if (!board::runtime_directory(runtime_dir, sizeof runtime_dir).ok()) return;
  for (Candidate& gpu : *gpus) gpu.out_of_use = control::read_notice(runtime_dir, control::kOutOfUsePrefix + gpu.uuid);
  const Boards boards = Boards::open_all(runtime_dir);
  for (const board::Board* board : boards.all()) {
    for (Candidate& gpu : *gpus) {
      if (gpu.uuid != board->device) continue;
      gpu.job_priorities = job_priorities(*board);
      // What running jobs may still take by their limits is as good as used.
      if (gpu.memory_used_bytes) *gpu.memory_used_bytes += board::memory_promised(board, -1);
    }
  }
}

bool is_unset(const char* value) { return value == nullptr || *value == '\0'; }

void use_emulated_nvml(const Installation& installation) {
  if (is_unset(std::getenv("SLUICE_NVML"))) setenv("SLUICE_NVML", installation.emulator_nvml.c_str(), 1);
}

}  // namespace

Result<DriverChoice> choose_driver(const Installation& installation) {
  DriverChoice choice;
  char path[PATH_MAX];
  choice.missing = driver::find_library(path, sizeof path);
  if (!choice.missing.ok()) return choice;
  choice.path = path;
  if (is_unset(std::getenv("SLUICE_DRIVER"))) return choice;
  Result<void*> handle = driver::open_library(path);
  if (!handle.ok()) return handle.status();
  choice.simulated = driver::is_emulator(*handle);
  if (choice.simulated) use_emulated_nvml(installation);
  return choice;
}

Result<Machine> Machine::look(const Installation& installation) {
  Machine machine;
  Result<DriverChoice> driver = choose_driver(installation);
  if (!driver.ok()) return driver.status();
  machine.driver_ = driver->path;
  machine.simulated_ = driver->simulated;
  if (driver->path.empty()) {
    if (!is_unset(std::getenv("SLUICE_DRIVER")) || !file_exists(installation.emulator_driver)) return driver->missing;
    machine.driver_ = installation.emulator_driver;
    machine.simulated_ = machine.substituted_ = true;
    use_emulated_nvml(installation);
  }

  Result<std::shared_ptr<health::Nvml>> nvml = health::Nvml::open();
  if (!nvml.ok()) return nvml.status();
  machine.nvml_ = std::move(*nvml);
  Result<std::vector<health::Device>> devices = machine.nvml_->devices();
  if (!devices.ok()) return devices.status();
  for (health::Device& device : *devices) {
    if (device.uuid.empty()) continue;  // a card that does not answer cannot be given to anybody
    Candidate gpu;
    gpu.index = device.index;
    gpu.uuid = std::move(device.uuid);
    gpu.name = std::move(device.name);
    gpu.memory_total_bytes = device.memory_total_bytes;
    gpu.memory_used_bytes = device.memory_used_bytes;
    gpu.utilization_ratio = device.utilization_ratio;
    machine.gpus_.push_back(std::move(gpu));
  }
  if (machine.gpus_.empty()) return Status::error(Code::kUnavailable, "NVML finds no GPU on this machine");
  add_jobs(&machine.gpus_);
  return machine;
}

Result<std::size_t> Machine::find(const std::string& name) const {
  unsigned index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_index = error == std::errc() && end == name.data() + name.size();
  std::vector<std::size_t> matches;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    // CUDA takes any beginning of a UUID that fits one GPU only.
    if (is_index ? gpus_[i].index == static_cast<int>(index)
                 : !name.empty() && gpus_[i].uuid.compare(0, name.size(), name) == 0) {
      matches.push_back(i);
    }
  }
  if (matches.size() == 1) return matches[0];
  if (matches.size() > 1) {
    return Status::error(Code::kUnavailable, "GPU '%.60s' fits %zu GPUs; write more of its UUID", name.c_str(),
                         matches.size());
  }
  std::string known;
  for (const Candidate& gpu : gpus_) known += (known.empty() ? "" : ", ") + std::to_string(gpu.index);
  return Status::error(Code::kUnavailable, "there is no GPU '%.60s' here; there is %.100s", name.c_str(),
                       known.c_str());
}

Result<Machine::Choice> Machine::choose(const JobRequest& request, const Environment& environment) const {
  Choice choice;
  if (request.gpu.kind == GpuRequest::Kind::kList) {
    for (const std::string& name : request.gpu.names) {
      Result<std::size_t> at = find(name);
      if (!at.ok()) return at.status();
      if (std::find(choice.gpus.begin(), choice.gpus.end(), *at) != choice.gpus.end()) {
        return Status::error(Code::kInvalidArgument, "--gpu names GPU %d twice", gpus_[*at].index);
      }
      if (gpus_[*at].out_of_use) return out_of_use(*at);
      choice.gpus.push_back(*at);
    }
    return choice;
  }
  const std::optional<std::string> visible = environment.get("CUDA_VISIBLE_DEVICES");
  if (!visible) {
    std::vector<std::size_t> all(gpus_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (Status status = leave_out(&all); !status.ok()) return status;
    return choose_auto(all, request.gpu.count, request.priority);
  }
  // As CUDA reads it: up to the first name that fits nothing.
  std::vector<std::size_t> among;
  for (std::size_t from = 0; from <= visible->size();) {
    const std::size_t end = std::min(visible->find(',', from), visible->size());
    Result<std::size_t> at = find(visible->substr(from, end - from));
    if (!at.ok() || std::find(among.begin(), among.end(), *at) != among.end()) break;
    among.push_back(*at);
    from = end + 1;
  }
  if (among.empty()) {
    return Status::error(Code::kNotFound, "CUDA_VISIBLE_DEVICES='%.60s' leaves no GPU to share", visible->c_str());
  }
  if (Status status = leave_out(&among); !status.ok()) return status;
  if (request.gpu.kind == GpuRequest::Kind::kAuto) return choose_auto(among, request.gpu.count, request.priority);
  choice.gpus = among;
  return choice;
}

Status Machine::out_of_use(std::size_t at) const {
  char runtime_dir[PATH_MAX] = "";
  static_cast<void>(board::runtime_directory(runtime_dir, sizeof runtime_dir));
  return Status::error(Code::kUnavailable, "GPU %d is out of use (%.60s); once it is repaired, remove %.100s/%s%.50s",
                       gpus_[at].index, gpus_[at].out_of_use->c_str(), runtime_dir, control::kOutOfUsePrefix,
                       gpus_[at].uuid.c_str());
}

Status Machine::leave_out(std::vector<std::size_t>* among) const {
  const std::size_t last = among->back();
  std::erase_if(*among, [&](std::size_t at) { return gpus_[at].out_of_use.has_value(); });
  return among->empty() ? out_of_use(last) : Status();
}

Result<Machine::Choice> Machine::choose_auto(const std::vector<std::size_t>& among, int count, int priority) const {
  std::vector<Candidate> candidates;
  for (std::size_t at : among) candidates.push_back(gpus_[at]);
  const Distance distance = [&](std::size_t a, std::size_t b) {
    const Result<health::Topology> path = nvml_->topology(candidates[a].uuid, candidates[b].uuid);
    return static_cast<int>(path.ok() ? *path : health::Topology::kSystem);
  };
  Result<Placement> placement = place(candidates, count, priority, distance);
  if (!placement.ok()) return placement.status();
  Choice choice;
  for (std::size_t at : placement->chosen) choice.gpus.push_back(among[at]);
  choice.why = placement->why;
  return choice;
}

void Machine::count_job(const Choice& choice, int priority) {
  for (std::size_t at : choice.gpus) gpus_[at].job_priorities.push_back(priority);
}

std::optional<Machine::Memory> Machine::memory(const std::string& uuid) const {
  const Result<health::Device> device = nvml_->device(uuid);
  if (!device.ok() || !device->memory_total_bytes || !device->memory_used_bytes) return std::nullopt;
  const std::uint64_t total = *device->memory_total_bytes;
  return Memory{total, total - std::min(total, *device->memory_used_bytes)};
}

std::string Machine::label(const std::string& uuid) const {
  for (const Candidate& gpu : gpus_) {
    if (gpu.uuid == uuid) return "GPU " + std::to_string(gpu.index) + " (" + gpu.name + ")";
  }
  return uuid;
}

Result<std::vector<GpuName>> Machine::places(const JobRequest& request, const Choice& choice) const {
  std::vector<GpuName> places;
  for (std::size_t at : choice.gpus) {
    const Candidate& gpu = gpus_[at];
    GpuName place{gpu.uuid, gpu.name, 0};
    if (request.memory.any()) {
      const std::uint64_t card = gpu.memory_total_bytes.value_or(0);
      place.memory_limit_bytes = request.memory.of(card);
      if (place.memory_limit_bytes == 0) {
        return Status::error(Code::kInvalidArgument,
                             "NVML does not tell how much memory %s has; give --memory in bytes",
                             label(gpu.uuid).c_str());
      }
      if (request.wait && card != 0 && place.memory_limit_bytes > card) {
        return Status::error(Code::kInvalidArgument, "the job would wait for ever: it asks for %s and %s has %s",
                             format_bytes(place.memory_limit_bytes).c_str(), label(gpu.uuid).c_str(),
                             format_bytes(card).c_str());
      }
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<GpuProcess> Machine::processes() const {
  std::vector<GpuProcess> all;
  for (const Candidate& gpu : gpus_) {
    const Result<std::vector<health::Process>> processes = nvml_->compute_processes(gpu.uuid);
    if (!processes.ok()) continue;
    for (const health::Process& process : *processes) all.push_back({process.pid, gpu.uuid});
  }
  return all;
}

}  // namespace sluice::cli
