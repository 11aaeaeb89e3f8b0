// The pool of device memory, for C and for PyTorch.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "error.h"
#include "sluice.h"
#include "sluice/base/units.h"
#include "sluice/driver.h"
#include "sluice/memory.h"

struct sluice_pool {
  std::unique_ptr<sluice::memory::Pool> pool;
};

namespace {

using sluice::Code;
using sluice::Result;
using sluice::Status;
using sluice::capi::guarded;
using sluice::capi::null_argument;
namespace memory = sluice::memory;

CUstream stream_of(void* stream) { return static_cast<CUstream>(stream); }

Status write_stats(const memory::PoolStats& from, sluice_pool_stats* out) {
  if (out->size < sizeof out->size)
    return Status::error(Code::kInvalidArgument, "sluice_pool_stats: 'size' is not set");
  sluice_pool_stats all = {};
  all.size = out->size;
  all.reserved_bytes = from.reserved_bytes;
  all.active_bytes = from.active_bytes;
  all.kept_bytes = from.kept_bytes;
  all.free_bytes = from.free_bytes;
  all.peak_bytes = from.peak_bytes;
  all.largest_free_bytes = from.largest_free_bytes;
  all.fragmentation_ratio = from.fragmentation_ratio;
  all.allocations = from.allocations;
  all.frees = from.frees;
  all.failures = from.failures;
  all.waits = from.waits;
  all.drains = from.drains;
  all.gathers = from.gathers;
  std::memcpy(out, &all, std::min(out->size, sizeof all));
  return {};
}

// PyTorch's pools, one a device. Never destroyed: at exit the driver may be gone before us.
struct TorchPools {
  std::mutex mutex;
  std::map<int, std::unique_ptr<memory::Pool>> pools;
};

TorchPools& torch_pools() {
  static auto* pools = new TorchPools;
  return *pools;
}

Result<std::uint64_t> torch_capacity() {
  if (const char* size = std::getenv("SLUICE_POOL_SIZE")) {
    Result<std::uint64_t> bytes = sluice::parse_bytes(size);
    if (!bytes.ok()) return Status::error(Code::kInvalidArgument, "SLUICE_POOL_SIZE: %s", bytes.status().message());
    return bytes;
  }
  Result<void*> library = sluice::driver::open_process_library();
  if (!library.ok()) return library.status();
  const auto info = sluice::driver::symbol<CUresult (*)(std::size_t*, std::size_t*)>(*library, "cuMemGetInfo_v2");
  std::size_t free = 0, total = 0;
  if (info == nullptr || info(&free, &total) != CUDA_SUCCESS)
    return Status::error(Code::kUnavailable, "the device does not say how much memory is free");
  return std::uint64_t{free} / 10 * 9;
}

// The device's pool, made in the current context, which is its primary one: PyTorch sees to that.
Result<memory::Pool*> torch_pool(int device, bool make) {
  TorchPools& all = torch_pools();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<memory::Pool>& pool = all.pools[device];
  if (pool == nullptr) {
    if (!make) return Status::error(Code::kNotFound, "no pool was made for device %d", device);
    Result<std::uint64_t> capacity = torch_capacity();
    if (!capacity.ok()) return capacity.status();
    Result<std::unique_ptr<memory::Pool>> made = memory::Pool::create({*capacity, false});
    if (!made.ok()) return made.status();
    pool = std::move(*made);
  }
  return pool.get();
}

}  // namespace

int sluice_pool_create(const sluice_pool_options* options, sluice_pool** out) {
  return guarded([&] {
    if (options == nullptr || out == nullptr)
      return null_argument("sluice_pool_create", options == nullptr ? "options" : "out");
    if (options->size < offsetof(sluice_pool_options, exportable))
      return Status::error(Code::kInvalidArgument, "sluice_pool_options: 'size' is not set");
    sluice_pool_options known = {};
    std::memcpy(&known, options, std::min(options->size, sizeof known));
    Result<std::unique_ptr<memory::Pool>> pool = memory::Pool::create({known.capacity_bytes, known.exportable != 0});
    if (!pool.ok()) return pool.status();
    *out = new sluice_pool{std::move(*pool)};
    return Status();
  });
}

void sluice_pool_destroy(sluice_pool* pool) { delete pool; }

int sluice_pool_allocate(sluice_pool* pool, uint64_t bytes, void* stream, uint64_t* address) {
  return guarded([&] {
    if (pool == nullptr || address == nullptr)
      return null_argument("sluice_pool_allocate", pool == nullptr ? "pool" : "address");
    Result<CUdeviceptr> block = pool->pool->allocate(bytes, stream_of(stream));
    if (!block.ok()) return block.status();
    *address = *block;
    return Status();
  });
}

int sluice_pool_free(sluice_pool* pool, uint64_t address, void* stream) {
  return guarded([&] {
    if (pool == nullptr) return null_argument("sluice_pool_free", "pool");
    return pool->pool->free(address, stream_of(stream));
  });
}

int sluice_pool_forget(sluice_pool* pool, void* stream) {
  return guarded([&] {
    if (pool == nullptr) return null_argument("sluice_pool_forget", "pool");
    return pool->pool->forget(stream_of(stream));
  });
}

int sluice_pool_get_stats(sluice_pool* pool, sluice_pool_stats* stats) {
  return guarded([&] {
    if (pool == nullptr || stats == nullptr)
      return null_argument("sluice_pool_get_stats", pool == nullptr ? "pool" : "stats");
    return write_stats(pool->pool->stats(), stats);
  });
}

void* sluice_torch_allocate(ptrdiff_t bytes, int device, void* stream) {
  if (bytes <= 0) return nullptr;
  Result<memory::Pool*> pool = torch_pool(device, true);
  if (!pool.ok()) throw std::runtime_error(std::string("Sluice: ") + pool.status().message());
  Result<CUdeviceptr> block = (*pool)->allocate(static_cast<std::uint64_t>(bytes), stream_of(stream));
  if (!block.ok()) throw std::runtime_error(std::string("Sluice: out of memory: ") + block.status().message());
  return reinterpret_cast<void*>(*block);  // NOLINT(performance-no-int-to-ptr): PyTorch's type for it
}

void sluice_torch_free(void* address, ptrdiff_t, int device, void* stream) {
  if (address == nullptr) return;
  Result<memory::Pool*> pool = torch_pool(device, false);
  Status status = pool.status();
  if (pool.ok()) status = (*pool)->free(reinterpret_cast<CUdeviceptr>(address), stream_of(stream));
  // PyTorch calls from destructors, which may not throw.
  if (!status.ok()) std::fprintf(stderr, "sluice: %s\n", status.message());
}

int sluice_torch_get_stats(int device, sluice_pool_stats* stats) {
  return guarded([&] {
    if (stats == nullptr) return null_argument("sluice_torch_get_stats", "stats");
    Result<memory::Pool*> pool = torch_pool(device, false);
    return pool.ok() ? write_stats((*pool)->stats(), stats) : pool.status();
  });
}
