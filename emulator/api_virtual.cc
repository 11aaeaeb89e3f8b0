// Virtual memory management: memory (blocks) and addresses apart, and mappings of one to the other.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "both.h"

namespace sluice::emulator {
namespace {

constexpr std::size_t kGranularity = 2 << 20;

Block* find_block(CUmemGenericAllocationHandle handle) {
  const auto at = state().blocks.find(handle);
  return at == state().blocks.end() || at->second->handles == 0 ? nullptr : at->second.get();
}

CUmemGenericAllocationHandle handle_of(const Block* block) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(block);
}

void drop_if_unused(Block* block) {
  if (block->handles != 0 || block->mappings != 0) return;
  close(block->fd);
  if (Context* context = block->context; context != nullptr)
    uncharge(state().machine->devices[context->device], context->slot_index, block->bytes);
  state().blocks.erase(handle_of(block));
}

// The context whose slot the memory of that card is counted in: the current one, or any of the process's.
Context* context_on(int card, Context* current) {
  if (current != nullptr && current->device == card) return current;
  for (const auto& [context, owned] : state().contexts) {
    if (context->device == card) return context;
  }
  return nullptr;
}

bool is_reserved(std::uint64_t address, std::size_t bytes) {
  auto at = state().reserved.upper_bound(address);
  if (at == state().reserved.begin()) return false;
  --at;
  return address - at->first <= at->second && bytes <= at->second - (address - at->first);
}

// The mappings that fill [address, address + bytes) exactly; empty if there are none or one sticks out.
std::vector<std::uint64_t> mappings_in(std::uint64_t address, std::size_t bytes) {
  std::vector<std::uint64_t> found;
  for (auto at = state().device_memory.lower_bound(address);
       at != state().device_memory.end() && at->first < address + bytes; ++at) {
    if (at->second.block == nullptr || at->first + at->second.bytes > address + bytes) return {};
    found.push_back(at->first);
  }
  return found;
}

}  // namespace

void forget_block_charges(Context* context) {
  for (auto& [handle, block] : state().blocks) {
    if (block->context == context) block->context = nullptr;
  }
}

}  // namespace sluice::emulator

using namespace sluice::emulator;

EMU_API CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  if (bytes == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (handle == nullptr || properties == nullptr || bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  State& s = state();
  const int device = properties->location.id;
  if (device < 0 || static_cast<std::size_t>(device) >= s.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  const int card = s.devices[static_cast<std::size_t>(device)];
  Context* context = context_on(card, call.context);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!charge(s.machine->devices[card], context->slot_index, bytes, s.settings->profile.memory_bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = memfd_create("emulated device memory", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    if (fd >= 0) close(fd);
    uncharge(s.machine->devices[card], context->slot_index, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto block = std::make_unique<Block>();
  block->properties = *properties;
  block->bytes = bytes;
  block->fd = fd;
  block->context = context;
  block->handles = 1;
  *handle = handle_of(block.get());
  s.blocks.emplace(*handle, std::move(block));
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Block* block = find_block(handle);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --block->handles;
  drop_if_unused(block);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  auto at = state().device_memory.upper_bound(reinterpret_cast<std::uint64_t>(address));
  if (handle == nullptr || at == state().device_memory.begin()) return CUDA_ERROR_INVALID_VALUE;
  --at;
  Block* block = at->second.block;
  if (block == nullptr || reinterpret_cast<std::uint64_t>(address) - at->first >= at->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  ++block->handles;
  *handle = handle_of(block);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Block* block = find_block(handle);
  if (block == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = block->properties;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                                     unsigned long long flags) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (address == nullptr || bytes == 0 || bytes % kGranularity != 0 || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // With room to align it; what is not used of that is given back.
  const std::size_t align = std::max(alignment, kGranularity);
  void* at = mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t start = reinterpret_cast<std::uint64_t>(at), aligned = (start + align - 1) / align * align;
  if (aligned != start) munmap(at, aligned - start);
  if (aligned != start + align) munmap(reinterpret_cast<void*>(aligned + bytes), start + align - aligned);
  state().reserved[aligned] = bytes;
  *address = aligned;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const auto at = state().reserved.find(address);
  if (at == state().reserved.end() || at->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = state().device_memory.lower_bound(address);
  if (mapped != state().device_memory.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(address), bytes);
  state().reserved.erase(at);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Block* block = find_block(handle);
  if (block == nullptr || flags != 0 || bytes == 0 || bytes % kGranularity != 0 || offset != 0 ||
      bytes > block->bytes || address % kGranularity != 0 || !is_reserved(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const auto next = state().device_memory.lower_bound(address);
  if ((next != state().device_memory.end() && next->first < address + bytes) || find_allocation(address, 0) != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, block->fd, 0) ==
      MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  ++block->mappings;
  Allocation mapping;
  mapping.bytes = bytes;
  mapping.context = block->context;
  mapping.block = block;
  mapping.accessible = false;
  state().device_memory[address] = mapping;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const std::vector<std::uint64_t> mappings = mappings_in(address, bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (std::uint64_t at : mappings) {
    const Allocation mapping = state().device_memory.at(at);
    state().device_memory.erase(at);
    if (mmap(reinterpret_cast<void*>(at), mapping.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      say("mapped memory could not be unmapped");
    --mapping.block->mappings;
    drop_if_unused(mapping.block);
  }
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                                std::size_t count) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const std::vector<std::uint64_t> mappings = mappings_in(address, bytes);
  if (mappings.empty() || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::uint64_t at : mappings)
    state().device_memory.at(at).accessible = access[0].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}
