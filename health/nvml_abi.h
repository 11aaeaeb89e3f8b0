// The part of NVML's binary interface that this room calls, as NVIDIA documents it; stable since driver 450.
#pragma once

namespace sluice::health::nvml {

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr Return kGpuLost = 15;
inline constexpr Return kLibraryMismatch = 18;  // the library and the kernel module are of different drivers
inline constexpr Return kUnknown = 999;

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

struct PciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, pci_device_id, pci_sub_system_id;
  char bus_id[32];
};

struct ViolationTime {
  unsigned long long reference_us, violation_ns;
};

// Arguments of the calls, by NVML's names for the enumerations.
inline constexpr int kTemperatureGpu = 0;  // nvmlTemperatureSensors_t
inline constexpr int kThresholdShutdown = 0, kThresholdSlowdown = 1, kThresholdGpuMax = 3;
inline constexpr int kClockSm = 1, kClockMemory = 2;                // nvmlClockType_t
inline constexpr int kEccCorrected = 0, kEccUncorrected = 1;        // nvmlMemoryErrorType_t
inline constexpr int kEccVolatile = 0, kEccAggregate = 1;           // nvmlEccCounterType_t
inline constexpr int kRetiredSingleBit = 0, kRetiredDoubleBit = 1;  // nvmlPageRetirementCause_t
inline constexpr int kPolicyPower = 0, kPolicyThermal = 1, kPolicyBoard = 3, kPolicyReliability = 5;

inline constexpr unsigned int kVersionBytes = 80;
inline constexpr unsigned int kNameBytes = 96;
inline constexpr unsigned int kUuidBytes = 96;

}  // namespace sluice::health::nvml
