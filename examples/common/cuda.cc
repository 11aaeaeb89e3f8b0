#include "common/cuda.h"

#include <dlfcn.h>

#include <cstdlib>

#include "common/kernels.h"

namespace sluice::example {
namespace {

// cuda.h renames some entry points by macro (cuMemAlloc is cuMemAlloc_v2): the inner macro sees the real name.
#define SLUICE_EXAMPLE_NAME(name) #name
#define SLUICE_EXAMPLE_LOAD(member, name)                                                                        \
  api->member = reinterpret_cast<decltype(api->member)>(dlsym(library, SLUICE_EXAMPLE_NAME(name)));              \
  if (api->member == nullptr) {                                                                                  \
    return Status::error(Code::kUnavailable, "libcuda.so.1 has no %s: install a driver of version 515 or newer", \
                         SLUICE_EXAMPLE_NAME(name));                                                             \
  }

Status load(Driver* api, void* library) {
  SLUICE_EXAMPLE_LOAD(init, cuInit)
  SLUICE_EXAMPLE_LOAD(get_error_name, cuGetErrorName)
  SLUICE_EXAMPLE_LOAD(device_get, cuDeviceGet)
  SLUICE_EXAMPLE_LOAD(device_get_name, cuDeviceGetName)
  SLUICE_EXAMPLE_LOAD(device_get_uuid, cuDeviceGetUuid)
  SLUICE_EXAMPLE_LOAD(device_get_attribute, cuDeviceGetAttribute)
  SLUICE_EXAMPLE_LOAD(primary_retain, cuDevicePrimaryCtxRetain)
  SLUICE_EXAMPLE_LOAD(set_current, cuCtxSetCurrent)
  SLUICE_EXAMPLE_LOAD(module_load, cuModuleLoadData)
  SLUICE_EXAMPLE_LOAD(module_get_function, cuModuleGetFunction)
  SLUICE_EXAMPLE_LOAD(stream_create, cuStreamCreate)
  SLUICE_EXAMPLE_LOAD(stream_synchronize, cuStreamSynchronize)
  SLUICE_EXAMPLE_LOAD(event_create, cuEventCreate)
  SLUICE_EXAMPLE_LOAD(event_record, cuEventRecord)
  SLUICE_EXAMPLE_LOAD(event_synchronize, cuEventSynchronize)
  SLUICE_EXAMPLE_LOAD(mem_alloc, cuMemAlloc)
  SLUICE_EXAMPLE_LOAD(mem_alloc_host, cuMemAllocHost)
  SLUICE_EXAMPLE_LOAD(copy_to_device, cuMemcpyHtoDAsync)
  SLUICE_EXAMPLE_LOAD(copy_to_host, cuMemcpyDtoHAsync)
  SLUICE_EXAMPLE_LOAD(launch_kernel, cuLaunchKernel)
  SLUICE_EXAMPLE_LOAD(begin_capture, cuStreamBeginCapture)
  SLUICE_EXAMPLE_LOAD(end_capture, cuStreamEndCapture)
  SLUICE_EXAMPLE_LOAD(graph_instantiate, cuGraphInstantiateWithFlags)
  SLUICE_EXAMPLE_LOAD(graph_launch, cuGraphLaunch)
  return {};
}

// The library in hand may be the shim, with the emulator behind it under the path that SLUICE_DRIVER names.
bool is_emulated(void* library) {
  if (dlsym(library, "sluice_emulator_version") != nullptr) return true;
  const char* behind = std::getenv("SLUICE_DRIVER");
  if (behind == nullptr) return false;
  void* handle = dlopen(behind, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  bool emulated = dlsym(handle, "sluice_emulator_version") != nullptr;
  dlclose(handle);
  return emulated;
}

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const char* digits = "0123456789abcdef";
    auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace

Status check(const Device& device, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  if (device.api.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  return Status::error(Code::kInternal, "%s failed: %s (%d)", what, name, static_cast<int>(result));
}

Status describe_device(Device* device) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::error(Code::kUnavailable,
                         "no CUDA driver: %s; install one, or start this with `sluice run`, which has an emulator",
                         dlerror());
  }
  if (Status status = load(&device->api, library); !status.ok()) return status;
  if (CUresult result = device->api.init(0); result != CUDA_SUCCESS) {
    return Status::error(Code::kUnavailable, "%s", check(*device, result, "cuInit").message());
  }
  CUdevice handle;
  if (CUresult result = device->api.device_get(&handle, 0); result != CUDA_SUCCESS) {
    return Status::error(Code::kUnavailable, "no CUDA device: %s", check(*device, result, "cuDeviceGet").message());
  }
  char name[128] = {};
  CUuuid uuid = {};
  if (Status s = check(*device, device->api.device_get_name(name, sizeof name, handle), "cuDeviceGetName"); !s.ok()) {
    return s;
  }
  if (Status s = check(*device, device->api.device_get_uuid(&uuid, handle), "cuDeviceGetUuid"); !s.ok()) return s;
  device->name = name;
  device->uuid = uuid_text(uuid);
  device->simulated = is_emulated(library);
  if (const char* scale = std::getenv("SLUICE_EMU_SCALE"); device->simulated && scale != nullptr) {
    double value = std::strtod(scale, nullptr);
    if (value > 0) device->real_per_shown = value;
  }
  return {};
}

Status open_device(Device* device) {
  if (Status status = describe_device(device); !status.ok()) return status;
  const Driver& api = device->api;
  CUdevice handle;
  CUcontext context;
  CUmodule module;
  if (Status s = check(*device, api.device_get(&handle, 0), "cuDeviceGet"); !s.ok()) return s;
  if (Status s = check(
          *device, api.device_get_attribute(&device->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle),
          "cuDeviceGetAttribute");
      !s.ok()) {
    return s;
  }
  if (Status s = check(*device, api.primary_retain(&context, handle), "cuDevicePrimaryCtxRetain"); !s.ok()) return s;
  if (Status s = check(*device, api.set_current(context), "cuCtxSetCurrent"); !s.ok()) return s;
  if (Status s = check(*device, api.module_load(&module, kKernels), "cuModuleLoadData"); !s.ok()) return s;
  if (Status s = check(*device, api.module_get_function(&device->spin, module, "spin_ns"), "cuModuleGetFunction");
      !s.ok()) {
    return s;
  }
  if (Status s = check(*device, api.module_get_function(&device->saxpy, module, "saxpy"), "cuModuleGetFunction");
      !s.ok()) {
    return s;
  }
  return check(*device, api.stream_create(&device->stream, CU_STREAM_DEFAULT), "cuStreamCreate");
}

CUresult launch_spin(const Device& device, unsigned blocks, std::uint64_t ns) {
  void* params[] = {&ns};
  return device.api.launch_kernel(device.spin, blocks, 1, 1, 32, 1, 1, 0, device.stream, params, nullptr);
}

CUresult launch_saxpy(const Device& device, unsigned n, float a, CUdeviceptr x, CUdeviceptr y) {
  void* params[] = {&n, &a, &x, &y};
  unsigned blocks = (n + 255) / 256;
  return device.api.launch_kernel(device.saxpy, blocks, 1, 1, 256, 1, 1, 0, device.stream, params, nullptr);
}

}  // namespace sluice::example
