// Wrappers of what takes and gives back device memory, generated from the table, and of what tells how much there is.
// How each road is counted: memory.h.
#include <cuda.h>

#include "graphs.h"
#include "hooks.h"
#include "memory.h"
#include "real.h"
#include "session.h"
#include "sluice/cuda_abi.h"

// Here each name means the exported symbol of that very name.
#undef cuDeviceTotalMem
#undef cuMemGetInfo

namespace sluice::shim {
namespace {

Session* current_session() {
  CUdevice device = 0;
  return real.ctx_get_device(&device) == CUDA_SUCCESS ? attach_device(device) : nullptr;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  return real.ctx_get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}

// Remembers what a successful call took; where that is impossible it is not counted.
void keep(Holder kind, std::uint64_t key, Session* session, std::uint64_t bytes, bool with_context) {
  if (session == nullptr) return;
  Held held;
  held.bytes = bytes;
  held.session = session;
  held.context = with_context ? current_context() : nullptr;
  if (!remember(kind, key, held)) give_memory(session, bytes);
}

void failed(Session* session, std::uint64_t bytes, CUresult result) {
  give_memory(session, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) note_out_of_memory(session, bytes);
}

template <class T>
std::uint64_t number(T* handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

template <class Call, class Address>
CUresult linear(Call call, Address* out, std::uint64_t bytes) {
  Session* session = current_session();
  if (!take_memory(session, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result == CUDA_SUCCESS && out != nullptr) {
    keep(Holder::kAddress, *out, session, bytes, true);
  } else {
    failed(session, bytes, result);
  }
  return result;
}

template <class Call, class Address, class Pitch>
CUresult pitched(Call call, Address* out, Pitch* pitch, std::uint64_t width, std::uint64_t height) {
  constexpr std::uint64_t kRow = 512;  // rows of every device so far start at multiples of it
  Session* session = current_session();
  const std::uint64_t expected = (width + kRow - 1) / kRow * kRow * height;
  if (!take_memory(session, expected)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result != CUDA_SUCCESS || out == nullptr || pitch == nullptr) {
    failed(session, expected, result);
    return result;
  }
  const std::uint64_t bytes = std::uint64_t{*pitch} * height;
  if (session != nullptr && bytes > expected) board::add_memory(session->board, session->client, bytes - expected);
  if (bytes < expected) give_memory(session, expected - bytes);
  keep(Holder::kAddress, *out, session, bytes, true);
  return result;
}

// Taken out before the driver's call, after which another thread may get the same address; put back if it fails.
template <class Call>
CUresult give_back(Call call, Holder kind, std::uint64_t key, bool* known = nullptr) {
  Held held;
  const bool found = forget_held(kind, key, &held);
  if (known != nullptr) *known = found;
  const CUresult result = call();
  if (!found) return result;
  if (result == CUDA_SUCCESS) {
    give_memory(held.session, held.bytes);
  } else if (!remember(kind, key, held)) {
    give_memory(held.session, held.bytes);
  }
  return result;
}

template <class Call>
CUresult free_address(Call call, CUdeviceptr address, bool ordered) {
  bool known = false;
  const CUresult result = give_back(call, Holder::kAddress, address, &known);
  if (known || result != CUDA_SUCCESS || address == 0) return result;
  // A pool's, most likely. The plain free waits for the work that uses it; the ordered one is done later.
  if (ordered) {
    pools_changed();
  } else {
    settle_pools();
  }
  return result;
}

template <class Call>
CUresult from_pool(Call call, std::uint64_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread) {
  const StreamState* state = find_stream(stream, per_thread);
  if (state != nullptr && is_capturing(*state)) {  // a node of the graph; the memory comes when it is launched
    const CUresult result = call();
    if (result == CUDA_SUCCESS) graph_memory_used(state->session);
    return result;
  }
  PoolTaking taking(state != nullptr ? state->session.load() : nullptr, pool, bytes);
  if (!taking.granted()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  taking.done(result);
  return result;
}

template <class Call>
CUresult create_pool(Call call, const CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && pool != nullptr && properties != nullptr &&
      properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    pool_created(*pool, properties->location.id);
  return result;
}

template <class Call>
CUresult destroy_pool(Call call, CUmemoryPool pool) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) pool_destroyed(pool);
  return result;
}

template <class Call>
CUresult trim(Call call) {
  const CUresult result = call();
  settle_pools();
  return result;
}

template <class Call>
CUresult graph_alloc(Call call, bool allocates) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS && allocates) graph_memory_used(current_session());
  return result;
}

// A child graph that was captured with gates may be unwelcome for their sake.
template <class Call>
CUresult graph_node(Call call, const CUgraphNodeParams* p) {
  const CUresult result = graph_alloc(call, p != nullptr && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  const bool is_child = p != nullptr && p->type == CU_GRAPH_NODE_TYPE_GRAPH;
  return result != CUDA_SUCCESS && is_child && strip(p->graph.graph) ? call() : result;
}

template <class Call>
CUresult create(Call call, const CUmemGenericAllocationHandle* handle, std::uint64_t bytes,
                const CUmemAllocationProp* properties) {
  const bool on_device = properties != nullptr && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  Session* session = on_device ? attach_device(properties->location.id) : nullptr;
  if (!take_memory(session, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result != CUDA_SUCCESS || handle == nullptr) {
    failed(session, bytes, result);
  } else if (session != nullptr) {
    add_block(*handle, session, bytes);
  }
  return result;
}

template <class Call, class Note>
CUresult noted(Call call, Note note) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) note();
  return result;
}

// ---- arrays

// Bits of one element of one channel; planar and block-compressed formats are told by the bits of a whole texel.
std::uint64_t texel_bits(CUarray_format format, unsigned channels) {
  switch (static_cast<unsigned>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 8ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 16ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 32ull * channels;
    case CU_AD_FORMAT_NV12:
      return 12;
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_Y444_PLANAR8:
    case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
      return 24;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
    case CU_AD_FORMAT_Y416:
      return 64;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
      return 8;
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
      return 4;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_YUY2:
      return 16;
    default:
      return 32;
  }
}

std::uint64_t at_least_one(std::uint64_t extent) { return extent != 0 ? extent : 1; }

// A whole array, or level `level` of a mipmapped one. Layers do not shrink with the level.
template <class Description>
std::uint64_t array_bytes(const Description& array, unsigned level) {
  std::uint64_t depth = 1;
  if constexpr (requires { array.Depth; }) {
    if ((array.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
    const bool layers = (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    depth = at_least_one(layers ? array.Depth : array.Depth >> level);
  }
  const std::uint64_t width = at_least_one(std::uint64_t{array.Width} >> level);
  const std::uint64_t height = at_least_one(std::uint64_t{array.Height} >> level);
  return (width * height * depth * texel_bits(array.Format, array.NumChannels) + 7) / 8;
}

template <class Call, class Handle, class Description>
CUresult array(Call call, Handle* out, const Description* description, unsigned levels = 1) {
  std::uint64_t bytes = 0;
  for (unsigned level = 0; description != nullptr && level < levels && level < 32; ++level)
    bytes += array_bytes(*description, level);
  Session* session = current_session();
  if (!take_memory(session, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call();
  if (result == CUDA_SUCCESS && out != nullptr) {
    keep(Holder::kArray, number(*out), session, bytes, true);
  } else {
    failed(session, bytes, result);
  }
  return result;
}

// ---- the wrappers

#define SLUICE_LINEAR(address, bytes) linear(call, address, bytes)
#define SLUICE_PITCHED(address, pitch, width, height) pitched(call, address, pitch, width, height)
#define SLUICE_FREE(address) free_address(call, address, false)
#define SLUICE_FREE_ASYNC(address) free_address(call, address, true)
#define SLUICE_ASYNC(bytes, stream, flags) from_pool(call, bytes, nullptr, stream, (flags) == 2)
#define SLUICE_FROM_POOL(bytes, pool, stream, flags) from_pool(call, bytes, pool, stream, (flags) == 2)
#define SLUICE_POOL_CREATE(pool, properties) create_pool(call, pool, properties)
#define SLUICE_POOL_DESTROY(pool) destroy_pool(call, pool)
#define SLUICE_TRIM() trim(call)
#define SLUICE_GRAPH_ALLOC(condition) graph_alloc(call, condition)
#define SLUICE_GRAPH_NODE(parameters) graph_node(call, parameters)
#define SLUICE_CREATE(handle, bytes, properties) create(call, handle, bytes, properties)
#define SLUICE_RELEASE(handle) noted(call, [=] { release_block(handle); })
#define SLUICE_RETAIN(handle)                         \
  noted(call, [=] {                                   \
    if ((handle) != nullptr) retain_block(*(handle)); \
  })
#define SLUICE_MAP(address, bytes, handle) noted(call, [=] { map_block(address, bytes, handle); })
#define SLUICE_UNMAP(address, bytes) noted(call, [=] { unmap_blocks(address, bytes); })
#define SLUICE_ARRAY(handle, description) array(call, handle, description)
#define SLUICE_MIPMAPPED(handle, description, levels) array(call, handle, description, levels)
#define SLUICE_DESTROY_ARRAY(handle) give_back(call, Holder::kArray, number(handle))

#define SLUICE_UNCOUNTED(symbol, reason)
#define SLUICE_ALLOCATE SLUICE_WRAPPER  // not by arguments of its own: they would be expanded, and some are macros
#include "sluice/cuda_abi/allocates.inc"

// ---- how much there is

template <class Size>
void lower(Size* value, std::uint64_t to) {
  if (value != nullptr && *value > to) *value = static_cast<Size>(to);
}

template <class Size>
void limit_info(Size* free, Size* total) {
  CUdevice device = 0;
  MemoryLimit memory;
  settle_pools();
  if (real.ctx_get_device(&device) != CUDA_SUCCESS || !memory_limit(device, &memory)) return;
  lower(total, memory.limit_bytes);
  lower(free, memory.limit_bytes > memory.used_bytes ? memory.limit_bytes - memory.used_bytes : 0);
}

template <class Size>
void limit_total(Size* bytes, CUdevice device) {
  MemoryLimit memory;
  if (memory_limit(device, &memory)) lower(bytes, memory.limit_bytes);
}

#define TELLING(symbol, params, args, after)                                                         \
  std::atomic<void*> real_##symbol;                                                                  \
  CUresult CUDAAPI hook_##symbol params {                                                            \
    using Function = CUresult(CUDAAPI*) params;                                                      \
    const Function next = reinterpret_cast<Function>(real_##symbol.load(std::memory_order_relaxed)); \
    const CUresult result = next args;                                                               \
    if (enabled() && result == CUDA_SUCCESS) after;                                                  \
    return result;                                                                                   \
  }
TELLING(cuMemGetInfo, (unsigned* free, unsigned* total), (free, total), limit_info(free, total))
TELLING(cuMemGetInfo_v2, (std::size_t * free, std::size_t* total), (free, total), limit_info(free, total))
TELLING(cuDeviceTotalMem, (unsigned* bytes, CUdevice device), (bytes, device), limit_total(bytes, device))
TELLING(cuDeviceTotalMem_v2, (std::size_t * bytes, CUdevice device), (bytes, device), limit_total(bytes, device))
TELLING(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device),
        if (context != nullptr) note_primary(device, *context))

#define HOOK(symbol) \
  { #symbol, reinterpret_cast < void*>(&hook_##symbol), &real_##symbol }
const Hook kHooks[] = {
    HOOK(cuMemGetInfo),        HOOK(cuMemGetInfo_v2),          HOOK(cuDeviceTotalMem),
    HOOK(cuDeviceTotalMem_v2), HOOK(cuDevicePrimaryCtxRetain),
#define SLUICE_UNCOUNTED(symbol, reason)
#define SLUICE_ALLOCATE(symbol, road, params, args) {#symbol, reinterpret_cast<void*>(&hook_##symbol), &real_##symbol},
#include "sluice/cuda_abi/allocates.inc"
};

const char* const kCounted[] = {
#define SLUICE_UNCOUNTED(symbol, reason)
#define SLUICE_ALLOCATE(symbol, road, params, args) #symbol,
#include "sluice/cuda_abi/allocates.inc"
    nullptr};

}  // namespace

std::span<const Hook> memory_hooks() { return kHooks; }

}  // namespace sluice::shim

// For cuda_abi/tools/list_ungated --memory.
extern "C" [[gnu::visibility("default")]] const char* const* sluice_shim_counted_symbols() {
  return sluice::shim::kCounted;
}
