#include "stub_driver.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "sluice/cuda_abi.h"

#define STUB_EXPORT __attribute__((visibility("default")))

namespace sluice::stub {
namespace {

thread_local Call calls[kCallsKept];
thread_local std::size_t call_count;
thread_local const char* answered_symbol;
thread_local CUresult answered_result;

void keep(Call* call, const void* value, std::size_t bytes) {
  Argument& argument = call->arguments[call->count++];
  argument.size = bytes;
  std::memcpy(argument.bytes, value, bytes);
}

Call* begin_call(const char* symbol) {
  static thread_local Call unkept;
  Call* call = call_count < kCallsKept ? &calls[call_count++] : &unkept;
  call->symbol = symbol;
  call->count = 0;
  return call;
}

template <class... Args>
void record(const char* symbol, const Args&... args) {
  static_assert(sizeof...(Args) <= std::size(Call{}.arguments));
  static_assert(((std::is_trivially_copyable_v<Args> && sizeof(Args) <= sizeof(Argument::bytes)) && ...));
  [[maybe_unused]] Call* call = begin_call(symbol);
  (keep(call, &args, sizeof args), ...);
}

bool answered(const char* symbol) { return answered_symbol && std::strcmp(answered_symbol, symbol) == 0; }

// ---- what has to behave ----------------------------------------------------------------------------------------

// Host memory that was registered: stream memory operations on it are carried out at once.
std::mutex registered_mutex;
struct Range {
  std::uintptr_t begin, end;
} registered[64];
std::size_t registered_count;

bool is_registered(CUdeviceptr address, std::size_t bytes) {
  std::lock_guard lock(registered_mutex);
  for (std::size_t i = 0; i < registered_count; ++i) {
    if (address >= registered[i].begin && address + bytes <= registered[i].end) return true;
  }
  return false;
}

template <class T>
CUresult put(T* out, T value) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = value;
  return CUDA_SUCCESS;
}

int context_object, event_object;
const CUcontext kContext = reinterpret_cast<CUcontext>(&context_object);

// One empty type an entry point, so that the ones that behave are overloads and the others take the template.
struct AnyTag {};
#define SLUICE_ENTRY(symbol, name, version, flags, cls, params, args) \
  struct Tag_##symbol : AnyTag {};
#include "sluice/cuda_abi/entries.inc"

template <class... Args>
CUresult act(AnyTag, const Args&...) {
  return CUDA_SUCCESS;
}
CUresult act(Tag_cuDriverGetVersion, int* version) { return put(version, kStubVersion); }
CUresult act(Tag_cuDeviceGetCount, int* count) { return put(count, 1); }
CUresult act(Tag_cuDeviceGet, CUdevice* device, int) { return put(device, 0); }
CUresult act(Tag_cuDeviceGetAttribute, int* value, CUdevice_attribute, CUdevice) { return put(value, 1); }
CUresult act(Tag_cuCtxGetCurrent, CUcontext* context) { return put(context, kContext); }
CUresult act(Tag_cuCtxGetDevice, CUdevice* device) { return put(device, 0); }
CUresult act(Tag_cuStreamGetCtx, CUstream, CUcontext* context) { return put(context, kContext); }
CUresult act(Tag_cuStreamGetCtx_ptsz, CUstream, CUcontext* context) { return put(context, kContext); }
CUresult act(Tag_cuStreamIsCapturing, CUstream, CUstreamCaptureStatus* status) {
  return put(status, CU_STREAM_CAPTURE_STATUS_NONE);
}
CUresult act(Tag_cuStreamIsCapturing_ptsz, CUstream, CUstreamCaptureStatus* status) {
  return put(status, CU_STREAM_CAPTURE_STATUS_NONE);
}
CUresult act(Tag_cuEventCreate, CUevent* event, unsigned) {
  return put(event, reinterpret_cast<CUevent>(&event_object));
}
CUresult act(Tag_cuEventElapsedTime, float* ms, CUevent, CUevent) { return put(ms, 0.01f); }
CUresult act(Tag_cuEventElapsedTime_v2, float* ms, CUevent, CUevent) { return put(ms, 0.01f); }
CUresult act(Tag_cuFuncGetName, const char** name, CUfunction) { return put<const char*>(name, "stub_kernel"); }
CUresult act(Tag_cuKernelGetName, const char** name, CUkernel) { return put<const char*>(name, "stub_kernel"); }
CUresult act(Tag_cuMemHostRegister_v2, void* memory, std::size_t bytes, unsigned) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  if (!memory || is_registered(begin, bytes)) return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(registered_mutex);
  if (registered_count == std::size(registered)) return CUDA_ERROR_OUT_OF_MEMORY;
  registered[registered_count++] = {begin, begin + bytes};
  return CUDA_SUCCESS;
}
CUresult act(Tag_cuMemHostGetDevicePointer_v2, CUdeviceptr* address, void* memory, unsigned) {
  return put(address, reinterpret_cast<CUdeviceptr>(memory));
}
CUresult act(Tag_cuStreamWriteValue32_v2, CUstream, CUdeviceptr address, cuuint32_t value, unsigned) {
  if (is_registered(address, sizeof value)) {
    __atomic_store_n(reinterpret_cast<cuuint32_t*>(address), value, __ATOMIC_RELEASE);
  }
  return CUDA_SUCCESS;
}
CUresult uuid(CUuuid* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(out->bytes, "sluice-stub-gpu!", sizeof out->bytes);
  return CUDA_SUCCESS;
}
CUresult act(Tag_cuDeviceGetUuid, CUuuid* out, CUdevice) { return uuid(out); }
CUresult act(Tag_cuDeviceGetUuid_v2, CUuuid* out, CUdevice) { return uuid(out); }

// ---- look-ups --------------------------------------------------------------------------------------------------

extern "C" CUresult stub_only_function(int value) {
  record(kStubFunction, value);
  return answered(kStubFunction) ? answered_result : CUDA_SUCCESS;
}
extern "C" CUresult stub_newer_mem_alloc(CUdeviceptr* out, std::size_t bytes, std::uint64_t location) {
  record("cuMemAlloc_newer", out, bytes, location);
  return answered("cuMemAlloc_newer") ? answered_result : CUDA_SUCCESS;
}

void log_lookup(const char* function, const char* name, int version, cuuint64_t flags) {
  static FILE* file = [] {
    const char* path = std::getenv("SLUICE_STUB_LOG");
    return path ? std::fopen(path, "ae") : nullptr;
  }();
  if (!file) return;
  std::fprintf(file, "%s\t%s\t%d\t%llu\n", function, name, version, static_cast<unsigned long long>(flags));
  std::fflush(file);  // the program under record may be killed at any point
}

void* address_of(const char* symbol);

CUresult look_up(const char* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* found) {
  if (!name || !out || version > kStubVersion || flags > 3) return CUDA_ERROR_INVALID_VALUE;
  const char* symbol = nullptr;
  if (std::strcmp(name, kStubFunction) == 0) symbol = kStubFunction;
  if (std::strcmp(name, "cuMemAlloc") == 0 && version >= kStubVersion) symbol = "cuMemAlloc_newer";
  if (!symbol) {
    const cuda_abi::Entry* entry = cuda_abi::find(name, version, flags);
    if (entry) symbol = entry->symbol;
  }
  *out = symbol ? address_of(symbol) : nullptr;
  if (found) {
    *found = symbol                                      ? CU_GET_PROC_ADDRESS_SUCCESS
             : cuda_abi::find(name, kStubVersion, flags) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                         : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
  }
  return symbol ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult act(Tag_cuGetProcAddress, const char* name, void** out, int version, cuuint64_t flags) {
  log_lookup("cuGetProcAddress", name, version, flags);
  return look_up(name, out, version, flags, nullptr);
}
CUresult act(Tag_cuGetProcAddress_v2, const char* name, void** out, int version, cuuint64_t flags,
             CUdriverProcAddressQueryResult* found) {
  log_lookup("cuGetProcAddress_v2", name, version, flags);
  CUdriverProcAddressQueryResult ignored;
  return look_up(name, out, version, flags, found ? found : &ignored);
}
CUresult act(Tag_cuGetExportTable, const void**, const CUuuid*) { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

// ---- the exported symbols --------------------------------------------------------------------------------------

// The names in C++ differ from the exported ones, which cuda.h would rewrite by its macros.
#define SLUICE_ENTRY(symbol, name, version, flags, cls, params, args) \
  extern "C" STUB_EXPORT CUresult stub_##symbol params __asm__(#symbol);
#include "sluice/cuda_abi/entries.inc"

#define STUB_UNPACK(...) __VA_OPT__(, ) __VA_ARGS__
#define SLUICE_ENTRY(symbol_, name_, version_, flags_, cls_, params_, args_) \
  extern "C" CUresult stub_##symbol_ params_ {                               \
    record(#symbol_ STUB_UNPACK args_);                                      \
    if (answered(#symbol_)) return answered_result;                          \
    return act(Tag_##symbol_ {} STUB_UNPACK args_);                          \
  }
#include "sluice/cuda_abi/entries.inc"

namespace {

void* address_of(const char* symbol) {
  if (std::strcmp(symbol, kStubFunction) == 0) return reinterpret_cast<void*>(&stub_only_function);
  if (std::strcmp(symbol, "cuMemAlloc_newer") == 0) return reinterpret_cast<void*>(&stub_newer_mem_alloc);
  struct Row {
    const char* symbol;
    void* address;
  };
  static const Row rows[] = {
#define SLUICE_ENTRY(symbol, name, version, flags, cls, params, args) \
  {#symbol, reinterpret_cast<void*>(&stub_##symbol)},
#include "sluice/cuda_abi/entries.inc"
  };
  for (const Row& row : rows) {
    if (std::strcmp(row.symbol, symbol) == 0) return row.address;
  }
  return nullptr;
}

}  // namespace

extern "C" STUB_EXPORT std::size_t sluice_stub_calls(const Call** out) {
  *out = calls;
  return call_count;
}
extern "C" STUB_EXPORT void sluice_stub_clear() {
  call_count = 0;
  answered_symbol = nullptr;
}
extern "C" STUB_EXPORT void sluice_stub_answer(const char* symbol, CUresult result) {
  answered_symbol = symbol;
  answered_result = result;
}
extern "C" STUB_EXPORT void* sluice_stub_address(const char* symbol) { return address_of(symbol); }

}  // namespace sluice::stub
