// What the two example programs share: the driver API opened at run time, one device, and two kernels as PTX.
//
// The programs link no CUDA library. They ask the dynamic linker for "libcuda.so.1" as every CUDA program does, so
// the same binary runs on a card, on the emulator and under `sluice run`. Thread safety: one thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "sluice/base/status.h"

namespace sluice::example {

// The driver's entry points that the examples use, by their names in cuda.h.
struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuGetErrorName) get_error_name;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetName) device_get_name;
  decltype(&::cuDeviceGetUuid) device_get_uuid;
  decltype(&::cuDeviceGetAttribute) device_get_attribute;
  decltype(&::cuDevicePrimaryCtxRetain) primary_retain;
  decltype(&::cuCtxSetCurrent) set_current;
  decltype(&::cuModuleLoadData) module_load;
  decltype(&::cuModuleGetFunction) module_get_function;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamSynchronize) stream_synchronize;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventSynchronize) event_synchronize;
  decltype(&::cuMemAlloc) mem_alloc;
  decltype(&::cuMemAllocHost) mem_alloc_host;
  decltype(&::cuMemcpyHtoDAsync) copy_to_device;
  decltype(&::cuMemcpyDtoHAsync) copy_to_host;
  decltype(&::cuLaunchKernel) launch_kernel;
  decltype(&::cuStreamBeginCapture) begin_capture;
  decltype(&::cuStreamEndCapture) end_capture;
  CUresult (*graph_instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  decltype(&::cuGraphLaunch) graph_launch;
};

// A device in use: its primary context is current in the thread that opened it, and the kernels are loaded. Nothing
// is given back at the end: the driver does that when the process exits.
struct Device {
  Driver api;
  std::string name;
  std::string uuid;           // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  bool simulated = false;     // the driver is Sluice's emulator
  double real_per_shown = 1;  // real seconds that one second of this device's time takes: SLUICE_EMU_SCALE if simulated
  int multiprocessors = 0;
  CUstream stream = nullptr;   // blocking, the only one
  CUfunction spin = nullptr;   // spin_ns(u64 ns): every block keeps its multiprocessor for `ns`
  CUfunction saxpy = nullptr;  // saxpy(u32 n, f32 a, u64 x, u64 y): y = a * x + y
};

// Finds out about device 0 without making a context: fills name, uuid, simulated and real_per_shown only.
// Errors: kUnavailable when there is no driver or no device.
Status describe_device(Device* device);

// The whole of it. Errors: as describe_device; kInternal with the failed call and the driver's name for the error.
Status open_device(Device* device);

// kOk for CUDA_SUCCESS, else kInternal with `what` and the driver's name for the error.
Status check(const Device& device, CUresult result, const char* what);

// Launches spin on `blocks` blocks of one warp. Duration in the device's time.
CUresult launch_spin(const Device& device, unsigned blocks, std::uint64_t ns);

// Launches saxpy over `n` floats. `x` and `y` are device addresses.
CUresult launch_saxpy(const Device& device, unsigned n, float a, CUdeviceptr x, CUdeviceptr y);

}  // namespace sluice::example
