// The functions of the NVML that was opened; private to the room.
#pragma once

#include <string>

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
  using List = Return (*)(DeviceHandle, unsigned int*, nvml::ProcessInfo*);
  List compute_processes, graphics_processes;
  Return (*topology)(DeviceHandle, DeviceHandle, int*);
  bool simulated;
  void* library;  // for what is asked seldom

  const char* text(Return code) const { return error_string != nullptr ? error_string(code) : "unknown error"; }

  Result<DeviceHandle> find(const std::string& gpu) const {
    DeviceHandle handle = nullptr;
    const Return code = by_uuid(gpu.c_str(), &handle);
    if (code == nvml::kSuccess) return handle;
    return Status::error(code == nvml::kInvalidArgument ? Code::kNotFound : code_of(code),
                         "NVML knows no GPU %.80s: %s", gpu.c_str(), text(code));
  }

  Status failed(const char* what, const std::string& gpu, Return code) const {
    return Status::error(code_of(code), "GPU %.80s: %s: %s", gpu.c_str(), what, text(code));
  }

  Result<std::vector<Process>> processes(List function, const char* what, const std::string& gpu) const;

  static Code code_of(Return code) {
    switch (code) {
      case nvml::kNotSupported:
      case nvml::kFunctionNotFound:
        return Code::kUnimplemented;
      case nvml::kNoPermission:
        return Code::kPermissionDenied;
      case nvml::kNotFound:
        return Code::kNotFound;
      case nvml::kGpuLost:
        return Code::kUnavailable;
      default:
        return Code::kInternal;
    }
  }
};

}  // namespace sluice::health
