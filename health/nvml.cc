#include <dlfcn.h>

#include <cstdlib>

#include "nvml_abi.h"
#include "sluice/health.h"

namespace sluice::health {

using nvml::DeviceHandle;
using nvml::Return;

// Null where the installed NVML has no such function.
struct Nvml::Functions {
  Return (*init)();
  Return (*shutdown)();
  const char* (*error_string)(Return);
  Return (*count)(unsigned int*);
  Return (*by_index)(unsigned int, DeviceHandle*);
  Return (*by_uuid)(const char*, DeviceHandle*);
  Return (*uuid)(DeviceHandle, char*, unsigned int);
  Return (*name)(DeviceHandle, char*, unsigned int);
  Return (*memory)(DeviceHandle, nvml::Memory*);
  Return (*memory_v2)(DeviceHandle, nvml::MemoryV2*);
  Return (*utilization)(DeviceHandle, nvml::Utilization*);
  Return (*compute_processes)(DeviceHandle, unsigned int*, nvml::ProcessInfo*);
  Return (*compute_mode)(DeviceHandle, int*);
  Return (*mig_mode)(DeviceHandle, unsigned int*, unsigned int*);
  Return (*topology)(DeviceHandle, DeviceHandle, int*);
  bool simulated;

  const char* text(Return code) const { return error_string != nullptr ? error_string(code) : "unknown error"; }

  Result<DeviceHandle> find(const std::string& gpu) const {
    DeviceHandle handle = nullptr;
    const Return code = by_uuid(gpu.c_str(), &handle);
    if (code == nvml::kSuccess) return handle;
    return Status::error(Code::kNotFound, "NVML knows no GPU %.80s: %s", gpu.c_str(), text(code));
  }

  Status failed(const char* what, const std::string& gpu, Return code) const {
    return Status::error(code == nvml::kNotSupported ? Code::kUnimplemented : Code::kInternal, "GPU %.80s: %s: %s",
                         gpu.c_str(), what, text(code));
  }
};

namespace {

template <class F>
void load(void* library, F& function, const char* name, const char* older = nullptr) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr && older != nullptr) function = reinterpret_cast<F>(dlsym(library, older));
}

}  // namespace

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
  load(library, f->compute_mode, "nvmlDeviceGetComputeMode");
  load(library, f->mig_mode, "nvmlDeviceGetMigMode");
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
  if (f.uuid(handle, text, sizeof text) == nvml::kSuccess) device->uuid = text;
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
  int mode = 0;
  if (f.compute_mode != nullptr && f.compute_mode(handle, &mode) == nvml::kSuccess)
    device->compute_mode = static_cast<ComputeMode>(mode);
  unsigned int divided = 0, from_next_reset = 0;
  if (f.mig_mode != nullptr && f.mig_mode(handle, &divided, &from_next_reset) == nvml::kSuccess)
    device->mig = divided != 0;
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
    if (f.by_index(i, &handle) == nvml::kSuccess) describe(handle, &devices[i]);
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
  const Functions& f = *functions_;
  if (f.compute_processes == nullptr) {
    return Status::error(Code::kUnimplemented, "this NVML lists no compute processes");
  }
  const Result<DeviceHandle> handle = f.find(uuid);
  if (!handle.ok()) return handle.status();
  // The list may grow between two calls; a few tries with room to spare are enough.
  std::vector<nvml::ProcessInfo> list(32);
  Return code = nvml::kInsufficientSize;
  unsigned int count = 0;
  for (int attempt = 0; attempt < 4 && code == nvml::kInsufficientSize; ++attempt) {
    if (count > list.size()) list.resize(count + 32);
    count = static_cast<unsigned int>(list.size());
    code = f.compute_processes(*handle, &count, list.data());
  }
  if (code != nvml::kSuccess) return f.failed("its compute processes", uuid, code);
  std::vector<Process> processes;
  for (unsigned int i = 0; i < count && i < list.size(); ++i) {
    Process process;
    process.pid = static_cast<pid_t>(list[i].pid);
    if (list[i].used_gpu_memory != nvml::kNotAvailable) process.memory_bytes = list[i].used_gpu_memory;
    processes.push_back(process);
  }
  return processes;
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
