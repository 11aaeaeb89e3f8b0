// The part of NVML's binary interface that this room calls, as NVIDIA documents it; stable since driver 450.
#pragma once

namespace sluice::health::nvml {

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;

using DeviceHandle = struct nvmlDevice_st*;

struct Memory {
  unsigned long long total, free, used;
};

struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned int kMemoryV2 = sizeof(MemoryV2) | 2u << 24;

struct Utilization {
  unsigned int gpu, memory;  // per cent
};

// Of nvmlDeviceGetComputeRunningProcesses_v2 and _v3.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_gpu_memory;
  unsigned int gpu_instance_id, compute_instance_id;
};
inline constexpr unsigned long long kNotAvailable = ~0ull;

inline constexpr unsigned int kNameBytes = 96;
inline constexpr unsigned int kUuidBytes = 96;

}  // namespace sluice::health::nvml
