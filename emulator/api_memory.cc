// Memory: the card's, pinned host memory, and what a pointer is.
#include <sys/mman.h>

#include <algorithm>

#include "both.h"

using namespace sluice::emulator;

EMU_API CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  std::uint64_t at = 0;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult e = allocate(call.context, bytes, false, &at); e != CUDA_SUCCESS) return e;
  *address = at;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width, std::size_t height,
                                    unsigned element) {
  if (pitch == nullptr || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(address, *pitch * height);
}

EMU_API CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (address == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::uint64_t at = 0;
  if (CUresult e = allocate(call.context, bytes, true, &at); e != CUDA_SUCCESS) return e;
  *address = at;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemFree_v2(CUdeviceptr address) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (address == 0) return CUDA_SUCCESS;
  auto at = state().device_memory.find(address);
  if (at == state().device_memory.end() || at->second.block != nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Like the driver it waits for the device, so it blocks while a gate is closed.
  wait_idle(at->second.context, call.lock);
  free_allocation(address);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  Device& card = state().machine->devices[call.context->device];
  const std::uint64_t bytes = state().settings->profile.memory_bytes;
  reap_slots(card);
  if (free != nullptr) *free = bytes - std::min(bytes, used_bytes(card));
  if (total != nullptr) *total = bytes;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  std::uint64_t start = 0;
  const Allocation* found = find_allocation(address, 0, &start);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (bytes != nullptr) *bytes = found->bytes;
  return CUDA_SUCCESS;
}

// ---- pinned host memory ---------------------------------------------------------------------------------------

EMU_API CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  state().host_memory[reinterpret_cast<std::uint64_t>(at)] = {bytes, flags, call.context, true};
  *pointer = at;
  return CUDA_SUCCESS;
}
EMU_API CUresult cuMemAllocHost_v2(void** pointer, std::size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

EMU_API CUresult cuMemFreeHost(void* pointer) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  auto at = state().host_memory.find(reinterpret_cast<std::uint64_t>(pointer));
  if (at == state().host_memory.end() || !at->second.owned) return CUDA_ERROR_INVALID_VALUE;
  wait_idle(at->second.context, call.lock);
  at = state().host_memory.find(reinterpret_cast<std::uint64_t>(pointer));
  if (at == state().host_memory.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer, at->second.bytes);
  state().host_memory.erase(at);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const auto next = state().host_memory.upper_bound(address);
  if (find_host_range(address, 0) != nullptr || (next != state().host_memory.end() && next->first < address + bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  state().host_memory[address] = {bytes, flags, call.context, false};
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemHostUnregister(void* pointer) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  auto at = state().host_memory.find(reinterpret_cast<std::uint64_t>(pointer));
  if (at == state().host_memory.end() || at->second.owned) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  wait_idle(at->second.context, call.lock);
  state().host_memory.erase(reinterpret_cast<std::uint64_t>(pointer));
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned flags) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (find_host_range(reinterpret_cast<std::uint64_t>(pointer), 0) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  const HostRange* found = find_host_range(reinterpret_cast<std::uint64_t>(pointer), 0);
  if (flags == nullptr || found == nullptr || !found->owned) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->flags;
  return CUDA_SUCCESS;
}

// ---- what a pointer is ----------------------------------------------------------------------------------------

namespace {

CUresult pointer_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  std::uint64_t base = 0;
  const Allocation* device = find_allocation(address, 0, &base);
  const HostRange* host = device == nullptr ? find_host_range(address, 0, &base) : nullptr;
  if (device == nullptr && host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = device != nullptr ? device->context : host->context;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;  // a mapping whose context has ended
  const auto& devices = state().devices;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) = reinterpret_cast<CUcontext>(context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = device != nullptr ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(out) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (device != nullptr && !device->managed) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(out) = reinterpret_cast<void*>(address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(out) = device != nullptr && device->managed ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) =
          static_cast<int>(std::find(devices.begin(), devices.end(), context->device) - devices.begin());
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(out) = device != nullptr ? device->bytes : host->bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(out) = 1;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(out) = base;  // unique while the allocation lives
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

EMU_API CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : pointer_attribute(out, attribute, address);
}

// Unlike the single query, it answers zeros for a pointer it does not know.
EMU_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out,
                                        CUdeviceptr address) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = pointer_attribute(out[i], attributes[i], address);
    if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
    if (result == CUDA_SUCCESS) continue;
    const bool narrow = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                        attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                        attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      *static_cast<int*>(out[i]) = -2;  // as the driver has it
    } else if (narrow) {
      *static_cast<unsigned*>(out[i]) = 0;
    } else {
      *static_cast<std::uint64_t*>(out[i]) = 0;
    }
  }
  return CUDA_SUCCESS;
}
