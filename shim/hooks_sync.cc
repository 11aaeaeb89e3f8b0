// Wrappers of what tells that work is done (waiting, querying, events), of stream capture, and of the ends of streams
// and contexts.
#include <cuda.h>

#include "graphs.h"
#include "held_wait.h"
#include "hooks.h"
#include "memory.h"
#include "real.h"
#include "session.h"

// Here each name means the exported symbol of that very name; cuda.h's macros would turn some into their newest
// version.
#undef cuCtxDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuEventDestroy
#undef cuStreamBeginCapture
#undef cuStreamDestroy

namespace sluice::shim {
namespace {

// Where each event was last recorded, so that waiting for it tells how far its stream is. Direct-mapped: a lost entry
// only means that the marker thread finds out instead.
struct Recorded {
  std::atomic<CUevent> event;
  StreamState* stream;
  std::uint64_t submitted;
};
constexpr int kRecorded = 1024;
Recorded recorded[kRecorded];
Mutex recorded_lock;

Recorded& entry_of(CUevent event) {
  return recorded[(reinterpret_cast<std::uintptr_t>(event) * 0x9e3779b97f4a7c15ull >> 40) % kRecorded];
}

// Events whose waits sleep by themselves; a lost entry only means that waiting for one while others hold this job asks
// instead. Direct-mapped like the table above.
std::atomic<CUevent> blocking_events[kRecorded];

std::atomic<CUevent>& blocking_entry_of(CUevent event) { return blocking_events[&entry_of(event) - recorded]; }

void note_created(const CUevent* event, unsigned flags, CUresult result) {
  if (result == CUDA_SUCCESS && (flags & CU_EVENT_BLOCKING_SYNC) != 0) blocking_entry_of(*event).store(*event);
}

void forget_event(CUevent event) {
  Recorded& entry = entry_of(event);
  if (entry.event.load(std::memory_order_relaxed) != event) return;
  Guard guard(recorded_lock);
  if (entry.event.load() == event) entry.event.store(nullptr);
}

// One record, around the driver's call. What is submitted during the call may come behind the event.
class Recording {
 public:
  Recording(CUevent event, CUstream handle, bool per_thread) {
    forget_event(event);  // it says nothing more about where it was recorded before
    StreamState* stream = find_stream(handle, per_thread);
    const Session* session = stream != nullptr ? stream->session.load() : nullptr;
    if (session == nullptr || !session->contended.load(std::memory_order_relaxed) || is_capturing(*stream)) return;
    stream_ = stream;
    submitted_ = stream->submitted.load();
  }
  void done(CUresult result, CUevent event) const {
    if (stream_ == nullptr || result != CUDA_SUCCESS) return;
    Guard guard(recorded_lock);
    Recorded& entry = entry_of(event);
    entry.stream = stream_;
    entry.submitted = submitted_;
    entry.event.store(event);
  }

 private:
  StreamState* stream_ = nullptr;
  std::uint64_t submitted_ = 0;
};

// Where that event was recorded last, and what had been submitted there; no stream where that is not known.
struct Place {
  StreamState* stream = nullptr;
  std::uint64_t submitted = 0;
};
Place place_of(CUevent event) {
  Recorded& entry = entry_of(event);
  if (event == nullptr || entry.event.load(std::memory_order_relaxed) != event) return {};
  Guard guard(recorded_lock);
  if (entry.event.load() != event) return {};
  return {entry.stream, entry.submitted};
}

void note_done(CUevent event) {
  settle_pools_if_changed();
  const Place place = place_of(event);
  if (place.stream != nullptr) completed(place.stream, place.submitted);
}

void await_recorded(CUevent event) {
  if (event == nullptr || blocking_entry_of(event).load(std::memory_order_relaxed) == event) return;
  if (StreamState* stream = place_of(event).stream; stream != nullptr) await_event(event, stream);
}

void destroyed(CUevent event) {
  forget_event(event);
  CUevent known = event;
  blocking_entry_of(event).compare_exchange_strong(known, nullptr);
}

// A wait for one stream, around the driver's call.
class StreamWait {
 public:
  StreamWait(CUstream handle, bool per_thread) : stream_(find_stream(handle, per_thread)) {
    if (stream_ != nullptr && stream_->session == nullptr) stream_ = nullptr;
    if (stream_ == nullptr) return;
    submitted_ = stream_->submitted.load();
    stream_->waiters.fetch_add(1);
  }
  void await() const {
    if (stream_ != nullptr && !is_capturing(*stream_)) await_stream(stream_);
  }
  void done(CUresult result) {
    if (stream_ == nullptr) return;
    stream_->waiters.fetch_sub(1);
    if (result != CUDA_SUCCESS) return;
    completed(stream_, submitted_);
    settle_pools_if_changed();
  }

 private:
  StreamState* stream_;
  std::uint64_t submitted_ = 0;
};

// A wait for a whole context.
class ContextWait {
 public:
  explicit ContextWait(CUcontext context) : context_(context), count_(stream_count()) {
    for (int i = 0; i < count_; ++i) {
      stream_[i] = mine(i);
      if (stream_[i] == nullptr) continue;
      submitted_[i] = stream_[i]->submitted.load();
      stream_[i]->waiters.fetch_add(1);
    }
  }
  void await() const {
    for (int i = 0; i < count_; ++i) {
      if (stream_[i] != nullptr) await_submission(stream_[i], submitted_[i]);
    }
  }
  // Also of those that went meanwhile, and whose state another has now.
  void done(CUresult result) {
    for (int i = 0; i < count_; ++i) {
      if (stream_[i] == nullptr) continue;
      stream_[i]->waiters.fetch_sub(1);
      if (result == CUDA_SUCCESS) completed(stream_[i], submitted_[i]);
    }
    if (result == CUDA_SUCCESS) settle_pools_if_changed();
  }

 private:
  StreamState* mine(int index) const {
    StreamState* stream = stream_at(index);
    return stream != nullptr && stream->session != nullptr && stream->context == context_ &&
                   stream->submitted.load() != 0
               ? stream
               : nullptr;
  }
  CUcontext context_;
  int count_;
  StreamState* stream_[kStreams];  // null: not waited for
  std::uint64_t submitted_[kStreams];
};

CUcontext current_context() {
  CUcontext context = nullptr;
  return real.ctx_get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}

// WRAP(symbol, (parameters), (arguments), { before }, { after, which sees `result` })
#define WRAP(symbol, params, args, before, after) SLUICE_WRAPPER(symbol, (AROUND(before, after)), params, args)
#define AROUND(before, after)       \
  [&] {                             \
    before;                         \
    const CUresult result = call(); \
    after;                          \
    return result;                  \
  }()

#define WRAP_STREAM(symbol, per_thread, await) \
  WRAP(symbol, (CUstream stream), (stream), StreamWait wait(stream, per_thread); await, wait.done(result))
WRAP_STREAM(cuStreamSynchronize, false, wait.await())
WRAP_STREAM(cuStreamSynchronize_ptsz, true, wait.await())
WRAP_STREAM(cuStreamQuery, false, )
WRAP_STREAM(cuStreamQuery_ptsz, true, )
WRAP(cuCtxSynchronize, (), (), ContextWait wait(current_context()); wait.await(), wait.done(result))
WRAP(cuCtxSynchronize_v2, (CUcontext context), (context), ContextWait wait(context); wait.await(), wait.done(result))

#define WRAP_EVENT(symbol, await) \
  WRAP(symbol, (CUevent event), (event), await, if (result == CUDA_SUCCESS) note_done(event))
WRAP_EVENT(cuEventSynchronize, await_recorded(event))
WRAP_EVENT(cuEventQuery, )
WRAP(cuEventCreate, (CUevent * event, unsigned flags), (event, flags), , note_created(event, flags, result))
#define WRAP_EVENT_DESTROY(symbol) WRAP(symbol, (CUevent event), (event), destroyed(event), )
WRAP_EVENT_DESTROY(cuEventDestroy)
WRAP_EVENT_DESTROY(cuEventDestroy_v2)
#define WRAP_RECORD(symbol, per_thread, params, args) \
  WRAP(symbol, params, args, const Recording recording(event, stream, per_thread), recording.done(result, event))
#define RECORD_PARAMS (CUevent event, CUstream stream)
#define RECORD_WITH_FLAGS_PARAMS (CUevent event, CUstream stream, unsigned flags)
WRAP_RECORD(cuEventRecord, false, RECORD_PARAMS, (event, stream))
WRAP_RECORD(cuEventRecord_ptsz, true, RECORD_PARAMS, (event, stream))
WRAP_RECORD(cuEventRecordWithFlags, false, RECORD_WITH_FLAGS_PARAMS, (event, stream, flags))
WRAP_RECORD(cuEventRecordWithFlags_ptsz, true, RECORD_WITH_FLAGS_PARAMS, (event, stream, flags))

// Capture. Its start is announced before the driver's call, so that nothing of ours gets into the graph.
void began(CUstream handle, bool per_thread, bool into_graph, CUresult result) {
  StreamState* stream = result == CUDA_SUCCESS ? find_stream(handle, per_thread) : nullptr;
  if (stream != nullptr) {
    set_capturing(stream, true);
    capture_began(stream, into_graph);
  } else {
    capture_ended();
  }
}
void ended(CUstream handle, bool per_thread) {
  StreamState* stream = find_stream(handle, per_thread);
  if (stream == nullptr || !stream->capturing.load()) return;
  // A refused end, such as by another thread than the one that began, leaves the stream capturing.
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (real.stream_is_capturing(stream->handle, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
    return;
  set_capturing(stream, false);
}
#define WRAP_BEGIN(symbol, per_thread, into_graph, params, args)  \
  WRAP(symbol, params, args, prepare_capture(stream, per_thread); \
       capture_begins(), began(stream, per_thread, into_graph, result))
#define MODE_PARAMS (CUstream stream, CUstreamCaptureMode mode)
#define TO_GRAPH_PARAMS                                                                          \
  (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data, \
   size_t dependency_count, CUstreamCaptureMode mode)
#define TO_GRAPH_ARGS (stream, graph, dependencies, data, dependency_count, mode)
WRAP_BEGIN(cuStreamBeginCapture, false, false, (CUstream stream), (stream))
WRAP_BEGIN(cuStreamBeginCapture_ptsz, true, false, (CUstream stream), (stream))
WRAP_BEGIN(cuStreamBeginCapture_v2, false, false, MODE_PARAMS, (stream, mode))
WRAP_BEGIN(cuStreamBeginCapture_v2_ptsz, true, false, MODE_PARAMS, (stream, mode))
WRAP_BEGIN(cuStreamBeginCaptureToGraph, false, true, TO_GRAPH_PARAMS, TO_GRAPH_ARGS)
WRAP_BEGIN(cuStreamBeginCaptureToGraph_ptsz, true, true, TO_GRAPH_PARAMS, TO_GRAPH_ARGS)
#define WRAP_END(symbol, per_thread)                                                     \
  WRAP(symbol, (CUstream stream, CUgraph * graph), (stream, graph),                      \
       const CaptureEnd end(find_stream(stream, per_thread)), ended(stream, per_thread); \
       if (result == CUDA_SUCCESS && graph != nullptr) end.done(*graph))
WRAP_END(cuStreamEndCapture, false)
WRAP_END(cuStreamEndCapture_ptsz, true)

#define WRAP_STREAM_END(symbol) WRAP(symbol, (CUstream stream), (stream), forget_stream(stream), )
WRAP_STREAM_END(cuStreamDestroy)
WRAP_STREAM_END(cuStreamDestroy_v2)
void context_ended(CUcontext context, CUresult result) {
  forget_addresses();
  if (result == CUDA_SUCCESS) context_gone(context);
}
#define WRAP_CONTEXT_END(symbol) \
  WRAP(symbol, (CUcontext context), (context), forget_context(context), context_ended(context, result))
WRAP_CONTEXT_END(cuCtxDestroy)
WRAP_CONTEXT_END(cuCtxDestroy_v2)
// The primary context of a device may end here, or live on for who else retained it. Which one it is cannot be asked;
// forgetting too much only means that the streams are looked up again.
class PrimaryEnd {
 public:
  void done(CUdevice device) const {
    unsigned flags = 0;
    int active = 0;
    const bool known =
        real.primary_get_state != nullptr && real.primary_get_state(device, &flags, &active) == CUDA_SUCCESS;
    if (!known || active == 0) {
      forget_context_locked(nullptr);
      primary_gone(device);
    }
  }

 private:
  Guard driver_{driver_lock()};  // the marker thread uses no context while it may be going
};
#define WRAP_PRIMARY_END(symbol) WRAP(symbol, (CUdevice device), (device), const PrimaryEnd end, end.done(device))
WRAP_PRIMARY_END(cuDevicePrimaryCtxRelease)
WRAP_PRIMARY_END(cuDevicePrimaryCtxRelease_v2)
WRAP_PRIMARY_END(cuDevicePrimaryCtxReset)
WRAP_PRIMARY_END(cuDevicePrimaryCtxReset_v2)

#define HOOK(symbol) \
  { #symbol, reinterpret_cast < void*>(&hook_##symbol), &real_##symbol }
const Hook kHooks[] = {
    HOOK(cuStreamSynchronize),
    HOOK(cuStreamSynchronize_ptsz),
    HOOK(cuStreamQuery),
    HOOK(cuStreamQuery_ptsz),
    HOOK(cuCtxSynchronize),
    HOOK(cuCtxSynchronize_v2),
    HOOK(cuEventSynchronize),
    HOOK(cuEventQuery),
    HOOK(cuEventCreate),
    HOOK(cuEventDestroy),
    HOOK(cuEventDestroy_v2),
    HOOK(cuEventRecord),
    HOOK(cuEventRecord_ptsz),
    HOOK(cuEventRecordWithFlags),
    HOOK(cuEventRecordWithFlags_ptsz),
    HOOK(cuStreamBeginCapture),
    HOOK(cuStreamBeginCapture_ptsz),
    HOOK(cuStreamBeginCapture_v2),
    HOOK(cuStreamBeginCapture_v2_ptsz),
    HOOK(cuStreamBeginCaptureToGraph),
    HOOK(cuStreamBeginCaptureToGraph_ptsz),
    HOOK(cuStreamEndCapture),
    HOOK(cuStreamEndCapture_ptsz),
    HOOK(cuStreamDestroy),
    HOOK(cuStreamDestroy_v2),
    HOOK(cuCtxDestroy),
    HOOK(cuCtxDestroy_v2),
    HOOK(cuDevicePrimaryCtxRelease),
    HOOK(cuDevicePrimaryCtxRelease_v2),
    HOOK(cuDevicePrimaryCtxReset),
    HOOK(cuDevicePrimaryCtxReset_v2),
};

}  // namespace

std::span<const Hook> sync_hooks() { return kHooks; }

}  // namespace sluice::shim
