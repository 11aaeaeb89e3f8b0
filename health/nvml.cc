#include <dlfcn.h>

#include <cstdlib>

#include "functions.h"

namespace sluice::health {
namespace {

template <class F>
void load(void* library, F& function, const char* name, const char* older = nullptr) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr && older != nullptr) function = reinterpret_cast<F>(dlsym(library, older));
}

}  // namespace

Result<std::vector<Process>> Nvml::Functions::processes(List function, const char* what, const std::string& gpu) const {
  if (function == nullptr) return Status::error(Code::kUnimplemented, "this NVML does not tell %s", what);
  const Result<DeviceHandle> handle = find(gpu);
  if (!handle.ok()) return handle.status();
  // The list may grow between two calls; a few tries with room to spare are enough.
  std::vector<nvml::ProcessInfo> list(32);
  Return code = nvml::kInsufficientSize;
  unsigned int found = 0;
  for (int attempt = 0; attempt < 4 && code == nvml::kInsufficientSize; ++attempt) {
    if (found > list.size()) list.resize(found + 32);
    found = static_cast<unsigned int>(list.size());
    code = function(*handle, &found, list.data());
  }
  if (code != nvml::kSuccess) return failed(what, gpu, code);
  std::vector<Process> processes;
  for (unsigned int i = 0; i < found && i < list.size(); ++i) {
    Process process;
    process.pid = static_cast<pid_t>(list[i].pid);
    if (list[i].used_gpu_memory != nvml::kNotAvailable) process.memory_bytes = list[i].used_gpu_memory;
    processes.push_back(process);
  }
  return processes;
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

// The library stays loaded: threads of its own may still be in it.
Nvml::~Nvml() { functions_->shutdown(); }

Result<std::shared_ptr<Nvml>> Nvml::open(const char* path) {
  if (path == nullptr) path = std::getenv("SLUICE_NVML");
  if (path == nullptr || *path == '\0') path = "libnvidia-ml.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status::error(Code::kUnavailable, "NVML was not found: %.200s", dlerror());
  auto f = std::make_unique<Functions>();
  load(library, f->init, "nvmlInit_v2");
  load(library, f->shutdown, "nvmlShutdown");
  load(library, f->error_string, "nvmlErrorString");
  load(library, f->count, "nvmlDeviceGetCount_v2");
  load(library, f->by_index, "nvmlDeviceGetHandleByIndex_v2");
  load(library, f->by_uuid, "nvmlDeviceGetHandleByUUID");
  load(library, f->uuid, "nvmlDeviceGetUUID");
  load(library, f->name, "nvmlDeviceGetName");
  load(library, f->memory, "nvmlDeviceGetMemoryInfo");
  load(library, f->memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  load(library, f->utilization, "nvmlDeviceGetUtilizationRates");
  load(library, f->compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3",
       "nvmlDeviceGetComputeRunningProcesses_v2");
  load(library, f->graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3",
       "nvmlDeviceGetGraphicsRunningProcesses_v2");
  f->library = library;
  load(library, f->topology, "nvmlDeviceGetTopologyCommonAncestor");
  f->simulated = dlsym(library, "sluice_emulator_version") != nullptr;
  if (f->init == nullptr || f->shutdown == nullptr || f->count == nullptr || f->by_index == nullptr ||
      f->by_uuid == nullptr || f->uuid == nullptr) {
    return Status::error(Code::kUnavailable, "%.160s is no NVML of driver 450 or newer", path);
  }
  if (const Return code = f->init(); code != nvml::kSuccess) {
    return Status::error(Code::kUnavailable, "NVML cannot reach a driver: %s", f->text(code));
  }
  return std::shared_ptr<Nvml>(new Nvml(std::move(f)));
}

bool Nvml::simulated() const { return functions_->simulated; }

std::string Nvml::library() const {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(functions_->init), &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname[0] == '/' ? info.dli_fname : "";
}

void Nvml::describe(void* opaque, Device* device) const {
  const Functions& f = *functions_;
  const auto handle = static_cast<DeviceHandle>(opaque);
  char text[nvml::kUuidBytes] = {};
  static_assert(nvml::kNameBytes <= nvml::kUuidBytes);
  if (const Return code = f.uuid(handle, text, sizeof text); code == nvml::kSuccess) {
    device->uuid = text;
  } else {
    device->error = f.text(code);
  }
  if (f.name != nullptr && f.name(handle, text, nvml::kNameBytes) == nvml::kSuccess) device->name = text;
  // The second version leaves out what the driver reserves for itself, as nvidia-smi does.
  nvml::MemoryV2 exact{};
  exact.version = nvml::kMemoryV2;
  nvml::Memory memory{};
  if (f.memory_v2 != nullptr && f.memory_v2(handle, &exact) == nvml::kSuccess) {
    device->memory_total_bytes = exact.total;
    device->memory_used_bytes = exact.used;
  } else if (f.memory != nullptr && f.memory(handle, &memory) == nvml::kSuccess) {
    device->memory_total_bytes = memory.total;
    device->memory_used_bytes = memory.used;
  }
  nvml::Utilization load{};
  if (f.utilization != nullptr && f.utilization(handle, &load) == nvml::kSuccess) {
    device->utilization_ratio = load.gpu / 100.0;
  }
}

Result<std::vector<Device>> Nvml::devices() const {
  const Functions& f = *functions_;
  unsigned int count = 0;
  if (const Return code = f.count(&count); code != nvml::kSuccess) {
    return Status::error(Code::kUnavailable, "NVML cannot count the GPUs: %s", f.text(code));
  }
  std::vector<Device> devices(count);
  for (unsigned int i = 0; i < count; ++i) {
    devices[i].index = static_cast<int>(i);
    DeviceHandle handle = nullptr;
    if (const Return code = f.by_index(i, &handle); code == nvml::kSuccess) {
      describe(handle, &devices[i]);
    } else {
      devices[i].error = f.text(code);
    }
  }
  return devices;
}

Result<Device> Nvml::device(const std::string& uuid) const {
  const Result<DeviceHandle> handle = functions_->find(uuid);
  if (!handle.ok()) return handle.status();
  Device device;
  device.index = -1;
  describe(*handle, &device);
  return device;
}

Result<std::vector<Process>> Nvml::compute_processes(const std::string& uuid) const {
  return functions_->processes(functions_->compute_processes, "its compute processes", uuid);
}

Result<std::vector<Process>> Nvml::graphics_processes(const std::string& uuid) const {
  return functions_->processes(functions_->graphics_processes, "its graphics processes", uuid);
}

Result<Topology> Nvml::topology(const std::string& uuid, const std::string& other_uuid) const {
  const Functions& f = *functions_;
  if (f.topology == nullptr) return Status::error(Code::kUnimplemented, "this NVML knows no topology");
  const Result<DeviceHandle> one = f.find(uuid), other = f.find(other_uuid);
  if (!one.ok()) return one.status();
  if (!other.ok()) return other.status();
  int level = 0;
  if (const Return code = f.topology(*one, *other, &level); code != nvml::kSuccess) {
    return f.failed("its topology", uuid, code);
  }
  return static_cast<Topology>(level);
}

}  // namespace sluice::health
