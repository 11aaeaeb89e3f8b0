// libnvidia-ml.so.1 in front of the installed one, for jobs with a memory limit: a program that asks NVML how much
// memory there is gets the answer that the driver's cuMemGetInfo gives it. Everything else is passed on by a jump.
//
// The installed library is $SLUICE_NVML, which `sluice run` sets, else the one beside $SLUICE_DRIVER.
//
// Loaded into other people's programs, like the shim: no C++ runtime, no exit, no output. Thread safe.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "../boards_variable.h"
#include "../lock.h"
#include "sluice/board.h"
#include "sluice/driver.h"

extern "C" void* sluice_slots[];  // trampolines.S: one for each name of exports.inc, in that order

namespace sluice::shim {
namespace {

// Of nvml.h; stable since driver 450.
using Return = int;
constexpr Return kSuccess = 0, kLibraryNotFound = 12, kFunctionNotFound = 13;
using DeviceHandle = struct nvmlDevice_st*;
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kUuidBytes = 96;

Return (*real_uuid)(DeviceHandle, char*, unsigned);
Return (*real_memory)(DeviceHandle, Memory*);
Return (*real_memory_v2)(DeviceHandle, MemoryV2*);

Return not_found() { return kFunctionNotFound; }
Return no_library() { return kLibraryNotFound; }

constexpr int kGpus = 16;
struct Known {
  Place place;
  board::Board* board;
};
Known known[kGpus];
int known_count = 0;

struct Limit {
  unsigned long long bytes, left;
};

// False where this job has no limit on that GPU.
bool limit_of(DeviceHandle device, Limit* out) {
  static Mutex lock;
  char uuid[kUuidBytes] = {};
  if (real_uuid == nullptr || real_uuid(device, uuid, sizeof uuid) != kSuccess) return false;
  Guard guard(lock);
  for (int i = 0; i < known_count; ++i) {
    Known& gpu = known[i];
    if (std::strcmp(gpu.place.uuid, uuid) != 0 || gpu.place.job < 0 || gpu.place.job >= board::kJobs) continue;
    if (gpu.board == nullptr) {
      Result<board::Board*> mapped = board::map(gpu.place.path);
      if (!mapped.ok()) return false;
      gpu.board = *mapped;
    }
    out->bytes = gpu.board->jobs[gpu.place.job].memory_limit_bytes.load();
    if (out->bytes == 0) return false;
    const std::uint64_t used = board::memory_of(gpu.board, gpu.place.job);
    out->left = out->bytes > used ? out->bytes - used : 0;
    return true;
  }
  return false;
}

Return memory(DeviceHandle device, Memory* out) {
  const Return result = real_memory(device, out);
  Limit limit;
  if (result != kSuccess || out == nullptr || !limit_of(device, &limit)) return result;
  out->total = std::min(out->total, limit.bytes);
  out->free = std::min({out->free, limit.left, out->total});
  out->used = out->total - out->free;
  return result;
}

Return memory_v2(DeviceHandle device, MemoryV2* out) {
  const Return result = real_memory_v2(device, out);
  Limit limit;
  if (result != kSuccess || out == nullptr || !limit_of(device, &limit)) return result;
  if (out->total > limit.bytes) {
    out->total = limit.bytes;
    out->reserved = 0;  // of the card, beside the limit
  }
  out->free = std::min({out->free, limit.left, out->total - std::min(out->reserved, out->total)});
  out->used = out->total - out->reserved - out->free;
  return result;
}

const char* const kNames[] = {
#define SLUICE_EXPORT(symbol) #symbol,
#include "exports.inc"
#undef SLUICE_EXPORT
};

void* open_installed() {
  char path[4096] = {};
  if (const char* set = std::getenv("SLUICE_NVML"); set != nullptr && *set != '\0') {
    std::snprintf(path, sizeof path, "%s", set);
  } else if (const char* beside = std::getenv("SLUICE_DRIVER"); beside != nullptr && std::strrchr(beside, '/')) {
    const int folder = static_cast<int>(std::strrchr(beside, '/') - beside);
    std::snprintf(path, sizeof path, "%.*s/libnvidia-ml.so.1", folder, beside);
  }
  // Only by a path: the bare name is this library.
  void* handle = std::strchr(path, '/') != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (handle == nullptr || driver::symbol_address(handle, "sluice_shim_nvml_version") != nullptr) return nullptr;
  return handle;
}

[[gnu::constructor]] void load() {
  void* handle = open_installed();
  const char* boards = std::getenv("SLUICE_BOARDS");
  while (boards != nullptr && known_count < kGpus && next_place(&boards, &known[known_count].place)) ++known_count;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    void* function =
        handle != nullptr ? driver::symbol_address(handle, kNames[i]) : reinterpret_cast<void*>(&no_library);
    if (function == nullptr) function = reinterpret_cast<void*>(&not_found);
    sluice_slots[i] = function;
    if (handle == nullptr || function == reinterpret_cast<void*>(&not_found)) continue;
    if (std::strcmp(kNames[i], "nvmlDeviceGetUUID") == 0) *reinterpret_cast<void**>(&real_uuid) = function;
    if (std::strcmp(kNames[i], "nvmlDeviceGetMemoryInfo") == 0) {
      *reinterpret_cast<void**>(&real_memory) = function;
      sluice_slots[i] = reinterpret_cast<void*>(&memory);
    }
    if (std::strcmp(kNames[i], "nvmlDeviceGetMemoryInfo_v2") == 0) {
      *reinterpret_cast<void**>(&real_memory_v2) = function;
      sluice_slots[i] = reinterpret_cast<void*>(&memory_v2);
    }
  }
}

}  // namespace
}  // namespace sluice::shim

// Tells Sluice's own libraries from the driver's; the number is the shim's version.
extern "C" [[gnu::visibility("default")]] int sluice_shim_nvml_version() { return 1; }
