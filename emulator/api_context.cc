// Contexts: created, destroyed, made current, asked.
#include "work.h"

using namespace sluice::emulator;

namespace {

Context* known(CUcontext context) {
  auto* at = reinterpret_cast<Context*>(context);
  return state().contexts.count(at) != 0 ? at : nullptr;
}

CUresult create(CUcontext* context, unsigned flags, CUdevice dev) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  if (dev < 0 || static_cast<std::size_t>(dev) >= s.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  Context* created = nullptr;
  if (CUresult e = create_context(s.devices[dev], flags, false, &created); e != CUDA_SUCCESS) return e;
  *context = reinterpret_cast<CUcontext>(created);
  return push_context(created);
}

CUdevice ordinal_of(const Context* context) {
  const State& s = state();
  for (std::size_t i = 0; i < s.devices.size(); ++i) {
    if (s.devices[i] == context->device) return static_cast<CUdevice>(i);
  }
  return -1;
}

}  // namespace

EMU_API CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice dev) {
  return create(context, flags, dev);
}
EMU_API CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int count, unsigned flags, CUdevice dev) {
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(context, flags, dev);
}
EMU_API CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned flags, CUdevice dev) {
  if (params != nullptr && params->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params != nullptr && params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return create(context, flags, dev);
}

EMU_API CUresult cuCtxDestroy_v2(CUcontext context) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Context* at = known(context);
  if (at == nullptr || at->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (current_context() == at) pop_context();
  destroy_context(at, call.lock);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Context* at = known(context);
  return at == nullptr ? CUDA_ERROR_INVALID_CONTEXT : push_context(at);
}

EMU_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Context* at = pop_context();
  if (at == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(at);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSetCurrent(CUcontext context) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Context* at = known(context);
  if (context != nullptr && at == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  set_context(at);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetCurrent(CUcontext* context) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(call.context);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetDevice(CUdevice* dev) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dev = ordinal_of(call.context);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetDevice_v2(CUdevice* dev, CUcontext context) {
  Call call(context == nullptr);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Context* at = context == nullptr ? call.context : known(context);
  if (at == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dev = ordinal_of(at);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSynchronize() {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (CUresult e = forbid_waiting(call.context); e != CUDA_SUCCESS) return e;
  wait_idle(call.context, call.lock);
  return call.context->error;
}

EMU_API CUresult cuCtxSynchronize_v2(CUcontext context) {
  Call call(context == nullptr);
  if (call.error != CUDA_SUCCESS) return call.error;
  Context* at = context == nullptr ? call.context : known(context);
  if (at == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult e = forbid_waiting(at); e != CUDA_SUCCESS) return e;
  wait_idle(at, call.lock);
  return at->error;
}

EMU_API CUresult cuCtxGetFlags(unsigned* flags) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = call.context->flags;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSetFlags(unsigned flags) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  call.context->flags = flags;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  Call call(context == nullptr);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Context* at = context == nullptr ? call.context : known(context);
  if (at == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = at->unique_id;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  Call call(context == nullptr);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (context != nullptr && known(context) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;  // of every context since cuCtxCreate_v2
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (value == nullptr || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  auto set = call.context->limits.find(limit);
  if (set != call.context->limits.end()) {
    *value = set->second;
    return CUDA_SUCCESS;
  }
  // The driver's defaults, as its documentation has them.
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = 1 << 20;
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = 8 << 20;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}

EMU_API CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  call.context->limits[limit] = value;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}
EMU_API CUresult cuCtxSetCacheConfig(CUfunc_cache) { return Call().error; }

EMU_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;  // as the driver on Volta and newer
  return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxResetPersistingL2Cache() { return Call().error; }

// Cards reach each other's memory anyway: all of it is the host's.
EMU_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return known(peer) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
EMU_API CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  return known(peer) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
