// Streams: created, waited for, asked; stream memory operations; host functions.
#include <algorithm>

#include "both.h"
#include "graph.h"

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
  leave_capture(gone);
  gone->destroyed = true;
  kick(*gone->context->slot);
  return CUDA_SUCCESS;
}

namespace {

CUresult synchronize(bool per_thread, CUstream stream) {
  EMU_STREAM(stream);
  if (CUresult e = forbid(at); e != CUDA_SUCCESS) return e;
  Context* context = at->context;
  wait_done(at, at->submitted, call.lock);
  return context->error;
}

CUresult query(bool per_thread, CUstream stream) {
  EMU_STREAM(stream);
  if (CUresult e = forbid(at); e != CUDA_SUCCESS) return e;
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

// ---- stream memory operations ---------------------------------------------------------------------------------

CUresult memory_op(bool per_thread, CUstream stream, bool wait, bool wide, CUdeviceptr address, cuuint64_t value,
                   unsigned flags) {
  EMU_SUBMIT(stream);
  Op op;
  if (CUresult e = make_memory_op(wait, wide, address, value, flags, &op); e != CUDA_SUCCESS) return e;
  return put(at, std::move(op), call);
}

CUresult wait32(bool per_thread, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return memory_op(per_thread, stream, true, false, address, value, flags);
}
CUresult wait64(bool per_thread, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return memory_op(per_thread, stream, true, true, address, value, flags);
}
CUresult write32(bool per_thread, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return memory_op(per_thread, stream, false, false, address, value, flags);
}
CUresult write64(bool per_thread, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return memory_op(per_thread, stream, false, true, address, value, flags);
}

CUresult batch(bool per_thread, CUstream stream, unsigned count, CUstreamBatchMemOpParams* params, unsigned flags) {
  EMU_SUBMIT(stream);
  if (params == nullptr || count == 0 || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Op> ops;
  for (unsigned i = 0; i < count; ++i) {
    Op op;
    bool nothing = false;
    if (CUresult e = make_memory_op(params[i], &op, &nothing); e != CUDA_SUCCESS) return e;
    if (!nothing) ops.push_back(std::move(op));
  }
  if (at->capture != nullptr) {  // one node, however many there are
    Node* node = nullptr;
    const CUresult result = capture_node(at, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &node);
    if (node != nullptr) node->ops = std::move(ops);
    return result;
  }
  for (Op& op : ops) put(at, std::move(op), call);
  return CUDA_SUCCESS;
}

// ---- host functions -------------------------------------------------------------------------------------------

CUresult launch_host(bool per_thread, CUstream stream, CUhostFn function, void* user) {
  EMU_SUBMIT(stream);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Op op;
  op.kind = Op::Kind::kHost;
  op.host = function;
  op.user = user;
  return put(at, std::move(op), call);
}

CUresult add_callback(bool per_thread, CUstream stream, CUstreamCallback callback, void* user, unsigned flags) {
  EMU_SUBMIT(stream);
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Op op;
  op.kind = Op::Kind::kHost;
  op.callback = callback;
  op.user = user;
  return put(at, std::move(op), call);
}

}  // namespace

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
