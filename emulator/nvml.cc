// libnvidia-ml.so.1 of the emulated machine: what Sluice's health room asks, answered from the machine's shared state.
//
// NVML has no header here; names, numbers and layouts are those of its documentation (nvml.h of driver 580). It shows
// all cards, whatever CUDA_VISIBLE_DEVICES says, as the real one does.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "machine.h"
#include "sluice/base/clock.h"

namespace {

using namespace sluice::emulator;

enum NvmlReturn {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotFound = 6,
  kInsufficientSize = 7,
  kUnknown = 999,
};

// A card's handle is the address of its state in the machine.
using NvmlDevice = Device*;

std::atomic<int> g_users{0};

const Settings* ready() { return g_users.load() > 0 ? settings() : nullptr; }

// The card's index, or -1.
int index_of(const Settings& s, NvmlDevice device) {
  for (int i = 0; i < s.gpus; ++i) {
    if (device == &machine(s)->devices[i]) return i;
  }
  return -1;
}

NvmlReturn copy_text(const std::string& text, char* out, unsigned bytes) {
  if (out == nullptr) return kInvalidArgument;
  if (text.size() >= bytes) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;
};
struct NvmlProcessInfo {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance_id, compute_instance_id;
};
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlProcessInfo) == 24 && sizeof(NvmlMemoryV2) == 40 && sizeof(NvmlPciInfo) == 68);

}  // namespace

#define EMU_NVML extern "C" __attribute__((visibility("default")))

// What every query of a card begins with.
#define EMU_CARD(device, out)                              \
  const Settings* s = ready();                             \
  if (s == nullptr) return kUninitialized;                 \
  [[maybe_unused]] const int index = index_of(*s, device); \
  if (index < 0 || (out) == nullptr) return kInvalidArgument

EMU_NVML const char* sluice_emulator_version() { return SLUICE_VERSION; }

EMU_NVML NvmlReturn nvmlInit_v2() {
  if (settings() == nullptr) return kUnknown;
  machine(*settings());
  ++g_users;
  return kSuccess;
}
EMU_NVML NvmlReturn nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

EMU_NVML NvmlReturn nvmlShutdown() {
  if (g_users.load() == 0) return kUninitialized;
  --g_users;
  return kSuccess;
}

EMU_NVML const char* nvmlErrorString(NvmlReturn result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    default:
      return "Unknown Error";
  }
}

EMU_NVML NvmlReturn nvmlSystemGetDriverVersion(char* out, unsigned bytes) {
  return ready() == nullptr ? kUninitialized : copy_text("emulated-" SLUICE_VERSION, out, bytes);
}

EMU_NVML NvmlReturn nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (ready() == nullptr) return kUninitialized;
  if (version == nullptr) return kInvalidArgument;
  *version = 13000;
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetCount_v2(unsigned* count) {
  const Settings* s = ready();
  if (s == nullptr) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned>(s->gpus);
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* out) {
  const Settings* s = ready();
  if (s == nullptr) return kUninitialized;
  if (out == nullptr || index >= static_cast<unsigned>(s->gpus)) return kInvalidArgument;
  *out = &machine(*s)->devices[index];
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetHandleByUUID(const char* uuid, NvmlDevice* out) {
  const Settings* s = ready();
  if (s == nullptr) return kUninitialized;
  if (uuid == nullptr || out == nullptr) return kInvalidArgument;
  for (int i = 0; i < s->gpus; ++i) {
    if (device_uuid_text(*s, i) != uuid) continue;
    *out = &machine(*s)->devices[i];
    return kSuccess;
  }
  return kNotFound;
}

EMU_NVML NvmlReturn nvmlDeviceGetIndex(NvmlDevice device, unsigned* out) {
  EMU_CARD(device, out);
  *out = static_cast<unsigned>(index);
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetUUID(NvmlDevice device, char* out, unsigned bytes) {
  EMU_CARD(device, out);
  return copy_text(device_uuid_text(*s, index), out, bytes);
}

EMU_NVML NvmlReturn nvmlDeviceGetName(NvmlDevice device, char* out, unsigned bytes) {
  EMU_CARD(device, out);
  return copy_text(s->profile.name + " (emulated)", out, bytes);
}

EMU_NVML NvmlReturn nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* out) {
  EMU_CARD(device, out);
  reap_slots(*device);
  out->total = s->profile.memory_bytes;
  out->used = std::min<unsigned long long>(used_bytes(*device), out->total);
  out->free = out->total - out->used;
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetMemoryInfo_v2(NvmlDevice device, NvmlMemoryV2* out) {
  NvmlMemory plain;
  EMU_CARD(device, out);
  if (NvmlReturn e = nvmlDeviceGetMemoryInfo(device, &plain); e != kSuccess) return e;
  out->total = plain.total;
  out->reserved = 0;
  out->used = plain.used;
  out->free = plain.free;
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetUtilizationRates(NvmlDevice device, NvmlUtilization* out) {
  EMU_CARD(device, out);
  out->gpu = busy_percent(*device, sluice::now_ns());
  out->memory = 0;  // not modelled
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned* count, NvmlProcessInfo* out) {
  EMU_CARD(device, count);
  reap_slots(*device);
  std::map<pid_t, std::uint64_t> processes;  // a process may have several contexts
  for (const Slot& slot : device->slots) {
    const sluice::ProcessIdentity owner = slot.owner.load();
    if (owner != 0) processes[sluice::pid_of(owner)] += slot.bytes.load();
  }
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (room < processes.size()) return kInsufficientSize;
  if (out == nullptr && !processes.empty()) return kInvalidArgument;
  constexpr unsigned kNone = 0xffffffff;  // no MIG
  for (const auto& [pid, bytes] : processes) *out++ = {static_cast<unsigned>(pid), bytes, kNone, kNone};
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetTopologyCommonAncestor(NvmlDevice first, NvmlDevice second, unsigned* level) {
  EMU_CARD(first, level);
  const int other = index_of(*s, second);
  if (other < 0) return kInvalidArgument;
  // Pairs of cards share a PCIe switch; all hang below one host bridge.
  constexpr unsigned kInternal = 0, kSingle = 10, kHostBridge = 30;
  *level = index == other ? kInternal : index / 2 == other / 2 ? kSingle : kHostBridge;
  return kSuccess;
}

EMU_NVML NvmlReturn nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* out) {
  EMU_CARD(device, out);
  *out = {};
  out->bus = static_cast<unsigned>(index + 1);
  std::snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", out->bus & 0xff);
  std::snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus & 0xff);
  return kSuccess;
}
