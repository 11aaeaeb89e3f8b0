// Streams: created, waited for, asked; stream memory operations; host functions.
#include <algorithm>

#include "both.h"

using namespace sluice::emulator;

EMU_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* created = add_stream(call.context, flags, std::clamp(priority, -5, 0));
  state().streams.emplace(created->handle, created);
  *stream = created->handle;
  return CUDA_SUCCESS;
}
EMU_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

EMU_API CUresult cuStreamDestroy_v2(CUstream stream) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  auto at = state().streams.find(stream);
  if (at == state().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  Stream* gone = at->second;
  state().streams.erase(at);
  gone->destroyed = true;
  kick(*gone->context->slot);
  return CUDA_SUCCESS;
}

namespace {

CUresult synchronize(bool per_thread, CUstream stream) {
  EMU_STREAM(stream);
  Context* context = at->context;
  wait_done(at, at->submitted, call.lock);
  return context->error;
}

CUresult query(bool per_thread, CUstream stream) {
  EMU_STREAM(stream);
  if (at->completed < at->submitted) return CUDA_ERROR_NOT_READY;
  return at->context->error;
}

CUresult get_priority(bool per_thread, CUstream stream, int* priority) {
  EMU_STREAM(stream);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = at->priority;
  return CUDA_SUCCESS;
}

CUresult get_flags(bool per_thread, CUstream stream, unsigned* flags) {
  EMU_STREAM(stream);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = at->flags;
  return CUDA_SUCCESS;
}

CUresult get_id(bool per_thread, CUstream stream, unsigned long long* id) {
  EMU_STREAM(stream);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = at->unique_id;
  return CUDA_SUCCESS;
}

CUresult get_context(bool per_thread, CUstream stream, CUcontext* context) {
  EMU_STREAM(stream);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(at->context);
  return CUDA_SUCCESS;
}

CUresult get_context_v2(bool per_thread, CUstream stream, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return get_context(per_thread, stream, context);
}

CUresult get_device(bool per_thread, CUstream stream, CUdevice* device) {
  EMU_STREAM(stream);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& devices = state().devices;
  *device = static_cast<CUdevice>(std::find(devices.begin(), devices.end(), at->context->device) - devices.begin());
  return CUDA_SUCCESS;
}

// ---- capture: not yet; every stream says so -------------------------------------------------------------------

CUresult is_capturing(bool per_thread, CUstream stream, CUstreamCaptureStatus* status) {
  EMU_STREAM(stream);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult capture_info(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  if (id != nullptr) *id = 0;
  return is_capturing(per_thread, stream, status);
}

CUresult capture_info_v2(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph*,
                         const CUgraphNode**, std::size_t* count) {
  if (count != nullptr) *count = 0;
  return capture_info(per_thread, stream, status, id);
}

CUresult capture_info_v3(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                         CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData**, std::size_t* count) {
  return capture_info_v2(per_thread, stream, status, id, graph, nodes, count);
}

// ---- stream memory operations ---------------------------------------------------------------------------------

bool is_word(CUdeviceptr address, std::size_t bytes) {
  return address % bytes == 0 &&
         (find_host_range(address, bytes) != nullptr || find_allocation(address, bytes) != nullptr);
}

CUresult memory_op(Stream* at, Call& call, bool wait, bool wide, CUdeviceptr address, cuuint64_t value,
                   unsigned flags) {
  if (!is_word(address, wide ? 8 : 4)) return CUDA_ERROR_INVALID_VALUE;
  const unsigned known = wait ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : 0u | CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  if ((flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto op = std::make_unique<Op>();
  op->kind = wait ? Op::Kind::kWaitValue : Op::Kind::kWriteValue;
  op->word = reinterpret_cast<void*>(address);
  op->wide = wide;
  op->value = value;
  op->compare = flags & 3u;
  if (wait) op->cost_ns = state().settings->real(static_cast<double>(state().settings->profile.gate_wait_ns));
  submit(at, std::move(op), call.lock);
  return CUDA_SUCCESS;
}

CUresult wait32(bool per_thread, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  EMU_STREAM(stream);
  return memory_op(at, call, true, false, address, value, flags);
}
CUresult wait64(bool per_thread, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  EMU_STREAM(stream);
  return memory_op(at, call, true, true, address, value, flags);
}
CUresult write32(bool per_thread, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  EMU_STREAM(stream);
  return memory_op(at, call, false, false, address, value, flags);
}
CUresult write64(bool per_thread, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  EMU_STREAM(stream);
  return memory_op(at, call, false, true, address, value, flags);
}

CUresult batch(bool per_thread, CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned flags) {
  EMU_STREAM(stream);
  if (params == nullptr || count == 0 || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& p = params[i];
    const bool wait = p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    const bool write = p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    const bool wide = p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    CUresult result = CUDA_SUCCESS;
    if (wait) {
      const cuuint64_t value = wide ? p.waitValue.value64 : p.waitValue.value;
      result = memory_op(at, call, true, wide, p.waitValue.address, value, p.waitValue.flags);
    } else if (write) {
      const cuuint64_t value = wide ? p.writeValue.value64 : p.writeValue.value;
      result = memory_op(at, call, false, wide, p.writeValue.address, value, p.writeValue.flags);
    } else if (p.operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES && p.operation != CU_STREAM_MEM_OP_BARRIER) {
      result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// ---- host functions -------------------------------------------------------------------------------------------

CUresult launch_host(bool per_thread, CUstream stream, CUhostFn function, void* user) {
  EMU_STREAM(stream);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto op = std::make_unique<Op>();
  op->kind = Op::Kind::kHost;
  op->host = function;
  op->user = user;
  submit(at, std::move(op), call.lock);
  return CUDA_SUCCESS;
}

CUresult add_callback(bool per_thread, CUstream stream, CUstreamCallback callback, void* user, unsigned flags) {
  EMU_STREAM(stream);
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto op = std::make_unique<Op>();
  op->kind = Op::Kind::kHost;
  op->callback = callback;
  op->user = user;
  submit(at, std::move(op), call.lock);
  return CUDA_SUCCESS;
}

}  // namespace

#undef cuStreamGetCaptureInfo
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamBatchMemOp

EMU_BOTH(cuStreamSynchronize, synchronize, (CUstream s), (s))
EMU_BOTH(cuStreamQuery, query, (CUstream s), (s))
EMU_BOTH(cuStreamGetPriority, get_priority, (CUstream s, int* p), (s, p))
EMU_BOTH(cuStreamGetFlags, get_flags, (CUstream s, unsigned* f), (s, f))
EMU_BOTH(cuStreamGetId, get_id, (CUstream s, unsigned long long* id), (s, id))
EMU_BOTH(cuStreamGetCtx, get_context, (CUstream s, CUcontext* c), (s, c))
EMU_BOTH(cuStreamGetCtx_v2, get_context_v2, (CUstream s, CUcontext* c, CUgreenCtx* g), (s, c, g))
EMU_BOTH(cuStreamGetDevice, get_device, (CUstream s, CUdevice* d), (s, d))
EMU_BOTH(cuStreamIsCapturing, is_capturing, (CUstream s, CUstreamCaptureStatus* st), (s, st))
EMU_BOTH(cuStreamGetCaptureInfo, capture_info, (CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id), (s, st, id))
EMU_BOTH(cuStreamGetCaptureInfo_v2, capture_info_v2,
         (CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g, const CUgraphNode** d, std::size_t* n),
         (s, st, id, g, d, n))
EMU_BOTH(cuStreamGetCaptureInfo_v3, capture_info_v3,
         (CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g, const CUgraphNode** d,
          const CUgraphEdgeData** e, std::size_t* n),
         (s, st, id, g, d, e, n))
#define EMU_MEMORY_OP(name, function, word)                                               \
  EMU_BOTH(name, function, (CUstream s, CUdeviceptr a, word v, unsigned f), (s, a, v, f)) \
  EMU_BOTH(name##_v2, function, (CUstream s, CUdeviceptr a, word v, unsigned f), (s, a, v, f))
EMU_MEMORY_OP(cuStreamWaitValue32, wait32, cuuint32_t)
EMU_MEMORY_OP(cuStreamWaitValue64, wait64, cuuint64_t)
EMU_MEMORY_OP(cuStreamWriteValue32, write32, cuuint32_t)
EMU_MEMORY_OP(cuStreamWriteValue64, write64, cuuint64_t)
EMU_BOTH(cuStreamBatchMemOp, batch, (CUstream s, unsigned n, CUstreamBatchMemOpParams* p, unsigned f), (s, n, p, f))
EMU_BOTH(cuStreamBatchMemOp_v2, batch, (CUstream s, unsigned n, CUstreamBatchMemOpParams* p, unsigned f), (s, n, p, f))
EMU_BOTH(cuLaunchHostFunc, launch_host, (CUstream s, CUhostFn fn, void* user), (s, fn, user))
EMU_BOTH(cuStreamAddCallback, add_callback, (CUstream s, CUstreamCallback fn, void* user, unsigned f), (s, fn, user, f))

EMU_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}
