// Stream-ordered allocation and its pools. A pool takes the card's memory in chunks; what is free in it beyond the
// release threshold goes back as soon as a free has run (the driver's: when somebody next waits).
#include <algorithm>

#include "both.h"

namespace sluice::emulator {
namespace {

constexpr std::uint64_t kChunk = 2 << 20;

std::uint64_t chunks(std::uint64_t bytes) { return (bytes + kChunk - 1) / kChunk * kChunk; }

// Gives back what is neither used nor to be kept.
void shrink(Pool* pool, std::uint64_t keep) {
  const std::uint64_t target = std::max(chunks(pool->used), std::min(chunks(keep), pool->reserved));
  while (pool->reserved > target && !pool->charged.empty()) {
    auto& [context, bytes] = pool->charged.back();
    const std::uint64_t part = std::min(bytes, pool->reserved - target);
    uncharge(state().machine->devices[context->device], context->slot_index, part);
    pool->reserved -= part;
    bytes -= part;
    if (bytes == 0) pool->charged.pop_back();
  }
}

}  // namespace

CUresult take_from_pool(Pool* pool, Context* context, std::size_t bytes) {
  State& s = state();
  const std::uint64_t used = pool->used + bytes;
  if (used > pool->reserved) {
    const std::uint64_t growth = chunks(used - pool->reserved);
    if (pool->largest != 0 && pool->reserved + growth > pool->largest) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!charge(s.machine->devices[context->device], context->slot_index, growth, s.settings->profile.memory_bytes))
      return CUDA_ERROR_OUT_OF_MEMORY;
    pool->reserved += growth;
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
    pool->charged.emplace_back(context, growth);
  }
  pool->used = used;
  pool->used_high = std::max(pool->used_high, used);
  return CUDA_SUCCESS;
}

void return_to_pool(Pool* pool, std::size_t bytes) {
  pool->used -= std::min<std::uint64_t>(pool->used, bytes);
  shrink(pool, pool->destroyed ? 0 : pool->threshold);
  if (pool->destroyed && pool->used == 0) state().pools.erase(reinterpret_cast<CUmemoryPool>(pool));
}

void forget_pool_charges(Context* context) {
  for (auto& entry : state().pools) {
    Pool& pool = *entry.second;
    std::erase_if(pool.charged, [&](const auto& charge) {
      if (charge.first != context) return false;
      pool.reserved -= charge.second;
      return true;
    });
  }
}

namespace {

CUmemoryPool add_pool(int device, bool is_default) {
  auto pool = std::make_unique<Pool>();
  pool->device = device;
  pool->is_default = is_default;
  const auto handle = reinterpret_cast<CUmemoryPool>(pool.get());
  state().pools.emplace(handle, std::move(pool));
  return handle;
}

Pool* find_pool(CUmemoryPool handle) {
  const auto at = state().pools.find(handle);
  return at == state().pools.end() || at->second->destroyed ? nullptr : at->second.get();
}

CUmemoryPool default_pool(int device) {
  CUmemoryPool& pool = state().default_pools[device];
  if (pool == nullptr) pool = add_pool(device, true);
  return pool;
}
CUmemoryPool current_pool(int device) {
  CUmemoryPool& pool = state().current_pools[device];
  if (pool == nullptr || find_pool(pool) == nullptr) pool = default_pool(device);
  return pool;
}

CUresult alloc_async(bool per_thread, CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  EMU_SUBMIT(stream);
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult e = forbid(at); e != CUDA_SUCCESS) return e;  // graphs have no memory nodes here
  std::uint64_t out = 0;
  Pool* pool = find_pool(current_pool(at->context->device));
  if (CUresult e = allocate(at->context, bytes, false, &out, pool); e != CUDA_SUCCESS) return e;
  *address = out;
  return CUDA_SUCCESS;
}

CUresult alloc_from_pool(bool per_thread, CUdeviceptr* address, std::size_t bytes, CUmemoryPool handle,
                         CUstream stream) {
  EMU_SUBMIT(stream);
  Pool* pool = find_pool(handle);
  if (address == nullptr || pool == nullptr || pool->device != at->context->device) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult e = forbid(at); e != CUDA_SUCCESS) return e;
  std::uint64_t out = 0;
  if (CUresult e = allocate(at->context, bytes, false, &out, pool); e != CUDA_SUCCESS) return e;
  *address = out;
  return CUDA_SUCCESS;
}

CUresult free_async(bool per_thread, CUdeviceptr address, CUstream stream) {
  EMU_SUBMIT(stream);
  const auto found = state().device_memory.find(address);
  if (found == state().device_memory.end() || found->second.block != nullptr) return CUDA_ERROR_INVALID_VALUE;
  Op op;
  op.kind = Op::Kind::kFree;
  op.address = address;
  return put(at, std::move(op), call);
}

// The physical card behind a CUdevice, or -1.
int card_of(CUdevice device) {
  const auto& devices = state().devices;
  return device >= 0 && static_cast<std::size_t>(device) < devices.size() ? devices[static_cast<std::size_t>(device)]
                                                                          : -1;
}

template <class Find>
CUresult device_pool(CUmemoryPool* out, CUdevice device, Find find) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int card = card_of(device);
  if (card < 0) return CUDA_ERROR_INVALID_DEVICE;
  *out = find(card);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sluice::emulator

using namespace sluice::emulator;

EMU_BOTH(cuMemAllocAsync, alloc_async, (CUdeviceptr * p, std::size_t n, CUstream s), (p, n, s))
EMU_BOTH(cuMemAllocFromPoolAsync, alloc_from_pool, (CUdeviceptr * p, std::size_t n, CUmemoryPool m, CUstream s),
         (p, n, m, s))
EMU_BOTH(cuMemFreeAsync, free_async, (CUdeviceptr p, CUstream s), (p, s))

EMU_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return device_pool(pool, device, default_pool);
}
EMU_API CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return device_pool(pool, device, current_pool);
}
EMU_API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const int card = card_of(device);
  const Pool* pool = find_pool(handle);
  if (card < 0) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == nullptr || pool->device != card) return CUDA_ERROR_INVALID_VALUE;
  state().current_pools[card] = handle;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (out == nullptr || properties == nullptr || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  const int card = card_of(properties->location.id);
  if (card < 0) return CUDA_ERROR_INVALID_VALUE;
  *out = add_pool(card, false);
  find_pool(*out)->largest = properties->maxSize;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Pool* pool = find_pool(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  pool->destroyed = true;
  return_to_pool(pool, 0);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Pool* pool = find_pool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  shrink(pool, keep);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  return find_pool(handle) != nullptr && (access != nullptr || count == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

namespace {

CUresult pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value, bool set) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Pool* pool = find_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto number = [&](std::uint64_t& field, bool writable) {
    if (set && !writable) return CUDA_ERROR_INVALID_VALUE;
    if (set) field = *static_cast<cuuint64_t*>(value);
    if (!set) *static_cast<cuuint64_t*>(value) = field;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: {
      int& reuse = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      if (set) reuse = *static_cast<int*>(value) != 0;
      if (!set) *static_cast<int*>(value) = reuse;
      return CUDA_SUCCESS;
    }
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return number(pool->threshold, true);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return number(pool->reserved, false);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return number(pool->used, false);
    // The marks can only be set back.
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      const bool reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
      std::uint64_t& mark = reserved ? pool->reserved_high : pool->used_high;
      if (!set) return number(mark, false);
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      mark = reserved ? pool->reserved : pool->used;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

EMU_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return pool_attribute(pool, attribute, value, true);
}
EMU_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return pool_attribute(pool, attribute, value, false);
}
