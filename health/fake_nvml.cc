// An NVML for tests, with three cards: an ordinary one, one that supports nothing, one that has fallen off the bus.
// SLUICE_FAKE_NVML_INIT makes nvmlInit_v2 return that number; SLUICE_FAKE_NVML_COMPUTE_MODE and SLUICE_FAKE_NVML_MIG
// are the modes of the ordinary card.
#include <cstdlib>
#include <cstring>

#include "nvml_abi.h"

namespace {

using sluice::health::nvml::DeviceHandle;
using sluice::health::nvml::kInsufficientSize;
using sluice::health::nvml::kNotFound;
using sluice::health::nvml::kNotSupported;
using sluice::health::nvml::kSuccess;

constexpr int kGpuLost = 15;
constexpr unsigned int kProcesses = 100;  // more than a first guess has room for

DeviceHandle handle_of(unsigned long index) { return reinterpret_cast<DeviceHandle>(index + 1); }
unsigned long index_of(DeviceHandle handle) { return reinterpret_cast<unsigned long>(handle) - 1; }
int put(char* out, unsigned int bytes, const char* text) {
  if (std::strlen(text) >= bytes) return kInsufficientSize;
  std::strcpy(out, text);
  return kSuccess;
}
int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}
const char* uuid_of(unsigned long index) {
  return index == 0 ? "GPU-00000000-0000-0000-0000-000000000001" : "GPU-00000000-0000-0000-0000-000000000002";
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() { return number_in("SLUICE_FAKE_NVML_INIT"); }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "the fake's error"; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 3;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, DeviceHandle* out) {
  if (index == 2) return kGpuLost;
  *out = handle_of(index);
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, DeviceHandle* out) {
  for (unsigned int i = 0; i < 2; ++i) {
    if (std::strcmp(uuid, uuid_of(i)) == 0) return nvmlDeviceGetHandleByIndex_v2(i, out);
  }
  return kNotFound;
}
int nvmlDeviceGetUUID(DeviceHandle device, char* out, unsigned int bytes) {
  return put(out, bytes, uuid_of(index_of(device)));
}
int nvmlDeviceGetName(DeviceHandle, char* out, unsigned int bytes) { return put(out, bytes, "Fake card"); }
int nvmlDeviceGetMemoryInfo(DeviceHandle device, sluice::health::nvml::Memory* out) {
  if (index_of(device) != 0) return kNotSupported;
  *out = {6ull << 30, 5ull << 30, 1ull << 30};
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(DeviceHandle device, sluice::health::nvml::Utilization* out) {
  if (index_of(device) != 0) return kNotSupported;
  *out = {58, 20};
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v2(DeviceHandle device, unsigned int* count,
                                            sluice::health::nvml::ProcessInfo* out) {
  if (index_of(device) != 0) return kNotSupported;
  const unsigned int room = *count;
  *count = kProcesses;
  if (room < kProcesses) return kInsufficientSize;
  for (unsigned int i = 0; i < kProcesses; ++i) {
    out[i] = {1000 + i, i == 0 ? sluice::health::nvml::kNotAvailable : i, 0, 0};
  }
  return kSuccess;
}
int nvmlDeviceGetComputeMode(DeviceHandle device, int* out) {
  if (index_of(device) != 0) return kNotSupported;
  *out = number_in("SLUICE_FAKE_NVML_COMPUTE_MODE");
  return kSuccess;
}
int nvmlDeviceGetMigMode(DeviceHandle device, unsigned int* current, unsigned int* pending) {
  if (index_of(device) != 0) return kNotSupported;
  *current = *pending = static_cast<unsigned int>(number_in("SLUICE_FAKE_NVML_MIG"));
  return kSuccess;
}
int nvmlDeviceGetTopologyCommonAncestor(DeviceHandle one, DeviceHandle other, int* out) {
  *out = one == other ? 0 : 30;
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
