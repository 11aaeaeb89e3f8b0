// Events, those shared between processes included.
#include <cstring>

#include "both.h"
#include "graph.h"
#include "sluice/base/clock.h"

using namespace sluice::emulator;

namespace {

// What an interprocess handle carries; the rest of its 64 bytes is zero.
struct IpcHandle {
  std::uint64_t magic;
  std::uint32_t index;
  std::uint32_t generation;
  std::uint64_t flags;
};
constexpr std::uint64_t kIpcMagic = 0x746e657665756d65;  // "emuevent"
static_assert(sizeof(IpcHandle) <= sizeof(CUipcEventHandle));

std::shared_ptr<Event> find_event(CUevent event) {
  auto at = state().events.find(event);
  return at == state().events.end() ? nullptr : at->second;
}

CUevent add_event(std::shared_ptr<Event> event) {
  const CUevent handle = reinterpret_cast<CUevent>(event.get());
  state().events.emplace(handle, std::move(event));
  return handle;
}

// What lies between a captured record and a captured wait is an edge of the graph; with `external`, both are nodes.
CUresult capture_event(Stream* stream, CUgraphNodeType type, CUevent event) {
  Node* node = nullptr;
  const CUresult result = capture_node(stream, type, &node);
  if (node != nullptr) node->event = event;
  return result;
}

CUresult record(bool per_thread, CUevent event, CUstream stream, bool external) {
  EMU_SUBMIT(stream);
  std::shared_ptr<Event> found = find_event(event);
  if (found == nullptr || found->context->device != at->context->device) return CUDA_ERROR_INVALID_HANDLE;
  if (at->capture != nullptr && external) return capture_event(at, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
  found->capture = at->capture;
  found->tips = at->tips;
  if (at->capture != nullptr) return CUDA_SUCCESS;
  auto op = std::make_unique<Op>();
  op->kind = Op::Kind::kRecord;
  if (found->ipc != nullptr) {
    found->ipc->recorder.store(sluice::own_identity());
    op->number = found->ipc->recorded.fetch_add(1) + 1;
  } else {
    op->number = ++found->recorded;
  }
  op->event = std::move(found);
  submit(at, std::move(op), call.lock);
  return CUDA_SUCCESS;
}

CUresult record_with_flags(bool per_thread, CUevent event, CUstream stream, unsigned flags) {
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return record(per_thread, event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
}
CUresult record_plain(bool per_thread, CUevent event, CUstream stream) {
  return record(per_thread, event, stream, false);
}

// Where the event or the stream belongs to a capture.
CUresult captured_wait(Stream* stream, CUevent handle, const Event& event, bool external) {
  if (stream->capture != nullptr && external) return capture_event(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, handle);
  if (event.capture == nullptr) {
    stream->capture->is_valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event.capture->streams.empty()) return CUDA_ERROR_CAPTURED_EVENT;  // its capture has ended
  if (stream->capture != nullptr && stream->capture != event.capture) {
    stream->capture->is_valid = event.capture->is_valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream->legacy) {
    event.capture->is_valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  join_capture(stream, event.capture, event.tips);
  return CUDA_SUCCESS;
}

CUresult stream_wait(bool per_thread, CUstream stream, CUevent event, unsigned flags) {
  EMU_SUBMIT(stream);
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Event> found = find_event(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (at->capture != nullptr || found->capture != nullptr)
    return captured_wait(at, event, *found, flags == CU_EVENT_WAIT_EXTERNAL);
  const std::uint64_t number = event_recorded(*found);
  if (event_done(*found, number)) return CUDA_SUCCESS;  // never recorded counts as done
  auto op = std::make_unique<Op>();
  op->kind = Op::Kind::kWaitEvent;
  op->event = std::move(found);
  op->number = number;
  submit(at, std::move(op), call.lock);
  return CUDA_SUCCESS;
}

std::uint64_t done_ns(const Event& event) { return event.ipc != nullptr ? event.ipc->done_ns.load() : event.done_ns; }

}  // namespace

EMU_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (event == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto created = std::make_shared<Event>();
  created->context = call.context;
  created->flags = flags;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if ((flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    const int index = claim_ipc_event(*state().machine);
    if (index < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    created->ipc = &state().machine->events[index];
    created->ipc_generation = created->ipc->generation.load();
  }
  *event = add_event(std::move(created));
  return CUDA_SUCCESS;
}

EMU_API CUresult cuEventDestroy_v2(CUevent event) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  std::shared_ptr<Event> found = find_event(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->ipc != nullptr && !found->imported) release_ipc_event(*found->ipc);
  state().events.erase(event);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuEventQuery(CUevent event) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  const std::shared_ptr<Event> found = find_event(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return event_done(*found, event_recorded(*found)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EMU_API CUresult cuEventSynchronize(CUevent event) {
  Call call(true, true);
  if (call.error != CUDA_SUCCESS) return call.error;
  const std::shared_ptr<Event> found = find_event(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  const std::uint64_t number = event_recorded(*found);
  State& s = state();
  if (found->ipc == nullptr) {
    ++s.event_waiters;
    s.event_done.wait(call.lock, [&] { return event_done(*found, number); });
    --s.event_waiters;
    return CUDA_SUCCESS;
  }
  // Nobody can tell this process: it looks again, the more rarely the longer it waits.
  call.lock.unlock();
  for (std::uint64_t pause = 20'000; !event_done(*found, number);
       pause = std::min<std::uint64_t>(pause * 2, 1'000'000)) {
    sluice::sleep_ns(pause);
  }
  return CUDA_SUCCESS;
}

EMU_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  const std::shared_ptr<Event> from = find_event(start), to = find_event(end);
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& event : {from, to}) {
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || event_recorded(*event) == 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!event_done(*event, event_recorded(*event))) return CUDA_ERROR_NOT_READY;
  }
  const double real_ns = static_cast<double>(static_cast<std::int64_t>(done_ns(*to) - done_ns(*from)));
  *milliseconds = static_cast<float>(real_ns / state().settings->scale / 1e6);
  return CUDA_SUCCESS;
}
#undef cuEventElapsedTime
EMU_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

EMU_BOTH(cuEventRecord, record_plain, (CUevent e, CUstream s), (e, s))
EMU_BOTH(cuEventRecordWithFlags, record_with_flags, (CUevent e, CUstream s, unsigned f), (e, s, f))
EMU_BOTH(cuStreamWaitEvent, stream_wait, (CUstream s, CUevent e, unsigned f), (s, e, f))

EMU_API CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  const std::shared_ptr<Event> found = find_event(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (handle == nullptr || found->ipc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto index = static_cast<std::uint32_t>(found->ipc - state().machine->events);
  const IpcHandle out{kIpcMagic, index, found->ipc_generation, found->flags};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &out, sizeof out);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  Call call;
  if (call.error != CUDA_SUCCESS) return call.error;
  IpcHandle in;
  std::memcpy(&in, &handle, sizeof in);
  if (event == nullptr || in.magic != kIpcMagic || in.index >= kIpcEvents) return CUDA_ERROR_INVALID_VALUE;
  IpcEvent& record_of = state().machine->events[in.index];
  if (record_of.generation.load() != in.generation || !sluice::is_alive(record_of.owner.load())) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  auto opened = std::make_shared<Event>();
  opened->context = call.context;
  opened->flags = static_cast<unsigned>(in.flags);
  opened->ipc = &record_of;
  opened->ipc_generation = in.generation;
  opened->imported = true;
  *event = add_event(std::move(opened));
  return CUDA_SUCCESS;
}
