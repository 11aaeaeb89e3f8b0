// cuInit, the cards and what they say of themselves, primary contexts.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.h"

namespace sluice::emulator {
namespace {

constexpr int kDriverVersion = CUDA_VERSION;

enum : int { kFresh = 0, kReady = 1, kForked = 2 };
std::atomic<int> g_phase{kFresh};

// CUDA_VISIBLE_DEVICES: indices or the beginnings of UUIDs; what follows the first invalid one is not visible.
std::vector<int> visible_devices(const Settings& settings) {
  std::vector<int> out;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < settings.gpus; ++i) out.push_back(i);
    return out;
  }
  const std::string list(text);
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::string item = list.substr(at, comma - at);
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    at = comma + 1;
    int found = -1;
    if (item.rfind("GPU-", 0) == 0) {
      for (int i = 0; i < settings.gpus; ++i) {
        if (device_uuid_text(settings, i).rfind(item, 0) != 0) continue;
        found = found < 0 ? i : settings.gpus;  // two that begin so are as good as none
      }
    } else if (!item.empty() && item.size() <= 3 && std::all_of(item.begin(), item.end(), ::isdigit)) {
      found = std::atoi(item.c_str());
    }
    if (found < 0 || found >= settings.gpus) break;
    // A card named twice: the driver shows none at all.
    if (std::count(out.begin(), out.end(), found) != 0) return {};
    out.push_back(found);
  }
  return out;
}

int physical(CUdevice device) {
  const State& s = state();
  return device >= 0 && static_cast<std::size_t>(device) < s.devices.size() ? s.devices[device] : -1;
}

}  // namespace

bool forked() { return g_phase.load() == kForked; }

CUresult ready() { return g_phase.load() == kReady ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }

namespace {

CUresult initialize() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (g_phase.load() == kReady) return CUDA_SUCCESS;
  const Settings* found = settings();
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<int> devices = visible_devices(*found);
  if (devices.empty()) return CUDA_ERROR_NO_DEVICE;
  s.settings = found;
  s.machine = machine(*found);
  s.devices = std::move(devices);
  // A process that called exec keeps its identity, and the slots of the program it was are nobody's.
  const ProcessIdentity self = own_identity();
  for (Device& device : s.machine->devices) {
    for (int i = 0; i < kSlots; ++i) {
      if (device.slots[i].owner.load() == self) release_slot(device, i);
    }
  }
  pthread_atfork(nullptr, nullptr, [] {
    if (g_phase.load() == kReady) g_phase.store(kForked);
  });
  g_phase.store(kReady);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sluice::emulator

using namespace sluice::emulator;

extern "C" __attribute__((visibility("default"))) const char* sluice_emulator_version() { return SLUICE_VERSION; }

EMU_API CUresult cuInit(unsigned flags) { return flags == 0 ? initialize() : CUDA_ERROR_INVALID_VALUE; }

EMU_API CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetCount(int* count) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(state().devices.size());
  return CUDA_SUCCESS;
}

// What every query of a device begins with.
#define EMU_DEVICE(pointer, dev)                             \
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;     \
  const int index = physical(dev);                           \
  if (index < 0) return CUDA_ERROR_INVALID_DEVICE;           \
  if ((pointer) == nullptr) return CUDA_ERROR_INVALID_VALUE; \
  [[maybe_unused]] const Profile& p = state().settings->profile

EMU_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  EMU_DEVICE(device, ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetName(char* name, int length, CUdevice dev) {
  EMU_DEVICE(name, dev);
  if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s (emulated)", p.name.c_str());
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  EMU_DEVICE(uuid, dev);
  device_uuid(*state().settings, index, reinterpret_cast<unsigned char*>(uuid->bytes));
  return CUDA_SUCCESS;
}
#undef cuDeviceGetUuid
EMU_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

EMU_API CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice dev) {
  EMU_DEVICE(bytes, dev);
  *bytes = p.memory_bytes;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  EMU_DEVICE(major, dev);
  if (minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = p.compute_capability_major;
  *minor = p.compute_capability_minor;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  EMU_DEVICE(prop, dev);
  *prop = {};
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = 2147483647;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->sharedMemPerBlock = 48 * 1024;
  prop->totalConstantMemory = 64 * 1024;
  prop->SIMDWidth = 32;
  prop->memPitch = 2147483647;
  prop->regsPerBlock = 65536;
  prop->clockRate = p.clock_khz;
  prop->textureAlign = 512;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev) {
  EMU_DEVICE(value, dev);
  if (attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  auto answer = [&]() -> int {
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
      case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
      case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
      case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
      case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
      case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 48 * 1024;
      case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return static_cast<int>(p.shared_bytes_per_block_optin);
      case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return static_cast<int>(p.shared_bytes_per_sm);
      case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return 64 * 1024;
      case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
      case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return 65536;
      case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return p.clock_khz;
      case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        return 512;
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return p.sm_count;
      case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return p.memory_clock_khz;
      case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return p.memory_bus_bits;
      case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return static_cast<int>(p.l2_bytes);
      case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return p.max_threads_per_sm;
      case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return p.max_blocks_per_sm;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return p.compute_capability_major;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return p.compute_capability_minor;
      case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
        return p.ecc ? 1 : 0;
      case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return index + 1;
      case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 2;
      case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
      case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return 1;
      default:
        return 0;  // what the emulator does not have: textures, clusters, RDMA, ...
    }
  };
  *value = answer();
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice dev) {
  EMU_DEVICE(text, dev);
  if (length < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", index + 1);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* text) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  unsigned domain = 0, bus = 0, device = 0;
  if (dev == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3 && std::sscanf(text, "%x:%x", &bus, &device) != 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < state().devices.size(); ++i) {
    if (static_cast<unsigned>(state().devices[i] + 1) == bus) {
      *dev = static_cast<CUdevice>(i);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

EMU_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  EMU_DEVICE(can, dev);
  if (physical(peer) < 0) return CUDA_ERROR_INVALID_DEVICE;
  *can = index != physical(peer) ? 1 : 0;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer) {
  EMU_DEVICE(value, dev);
  if (physical(peer) < 0 || physical(peer) == index) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ? 1 : 0;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  EMU_DEVICE(pi, dev);
  *pi = 0;
  return CUDA_SUCCESS;
}

// ---- primary contexts -----------------------------------------------------------------------------------------

EMU_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice dev) {
  EMU_DEVICE(context, dev);
  Call call(false);
  State::Primary& primary = state().primaries[index];
  if (primary.context == nullptr) {
    if (CUresult e = create_context(index, primary.flags, true, &primary.context); e != CUDA_SUCCESS) return e;
  }
  ++primary.users;
  *context = reinterpret_cast<CUcontext>(primary.context);
  return CUDA_SUCCESS;
}

namespace {

CUresult drop_primary(CUdevice dev, bool all) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  const int index = physical(dev);
  if (index < 0) return CUDA_ERROR_INVALID_DEVICE;
  Call call(false);
  State::Primary& primary = state().primaries[index];
  if (primary.context == nullptr) return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  primary.users = all ? 0 : primary.users - 1;
  if (primary.users > 0) return CUDA_SUCCESS;
  Context* context = std::exchange(primary.context, nullptr);
  destroy_context(context, call.lock);
  return CUDA_SUCCESS;
}

}  // namespace

EMU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return drop_primary(dev, false); }
EMU_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) { return drop_primary(dev, true); }

EMU_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
  EMU_DEVICE(&flags, dev);
  Call call(false);
  State::Primary& primary = state().primaries[index];
  primary.flags = flags;
  if (primary.context != nullptr) primary.context->flags = flags;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned* flags, int* active) {
  EMU_DEVICE(flags, dev);
  if (active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Call call(false);
  const State::Primary& primary = state().primaries[index];
  *flags = primary.flags;
  *active = primary.context != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxSetFlags
EMU_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return drop_primary(dev, false); }
EMU_API CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return drop_primary(dev, true); }
EMU_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

// ---- errors ---------------------------------------------------------------------------------------------------

namespace {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
#define EMU_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    EMU_ERROR(CUDA_SUCCESS, "no error"),
    EMU_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    EMU_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    EMU_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    EMU_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    EMU_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    EMU_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    EMU_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    EMU_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    EMU_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    EMU_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    EMU_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    EMU_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    EMU_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    EMU_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    EMU_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    EMU_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    EMU_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    EMU_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    EMU_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    EMU_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    EMU_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    EMU_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    EMU_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    EMU_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

CUresult error_text(CUresult error, const char** out, const char* ErrorText::*which) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const ErrorText& known : kErrors) {
    if (known.code == error) {
      *out = known.*which;
      return CUDA_SUCCESS;
    }
  }
  *out = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

EMU_API CUresult cuGetErrorName(CUresult error, const char** out) { return error_text(error, out, &ErrorText::name); }
EMU_API CUresult cuGetErrorString(CUresult error, const char** out) { return error_text(error, out, &ErrorText::text); }
