// Enqueuing waits and markers.
#include "real.h"
#include "say.h"
#include "session.h"

namespace sluice::shim {
namespace {

// How much estimated work goes between two markers, so that a job's progress is seen to move well within
// board::kStallNs while it only submits, also where unmanaged programs leave it a small part of the GPU.
constexpr std::uint64_t kMarkerEveryNs = 5'000'000;

void give_up(Session* session, board::Bypass why, CUresult result) {
  static std::atomic<bool> said{false};
  session->ungated.store(true);
  session->self->bypass.store(static_cast<std::uint32_t>(why));
  say_once(&said, "this job is not gated: %s (driver error %d)", board::bypass_text(why), static_cast<int>(result));
}

}  // namespace

bool register_memory(Session* session) {
  if (session->gate_address.load(std::memory_order_acquire) != 0) return true;
  if (session->ungated.load() || any_capture()) return false;  // later: registering would break a global capture
  static Mutex lock;
  Guard guard(lock);
  if (session->gate_address.load() != 0) return true;
  RelaxedCapture relaxed;
  bool is_new = false;
  const auto map = [&](void* memory, std::size_t bytes, CUdeviceptr* address) {
    const CUresult result =
        real.mem_host_register(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
    is_new = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return result;
    return real.mem_host_get_device_pointer(address, memory, 0);
  };
  CUdeviceptr board_address = 0;
  CUresult result = map(session->board, sizeof(board::Board), &board_address);
  const bool board_is_new = is_new;
  if (result == CUDA_SUCCESS) result = map(marker_memory(), marker_bytes(), &session->marker_address);
  if (result != CUDA_SUCCESS) {
    give_up(session, board::Bypass::kRegisterFailed, result);
    return false;
  }
  const std::size_t offset =
      static_cast<std::size_t>(reinterpret_cast<char*>(&session->self->gate) - reinterpret_cast<char*>(session->board));
  if (board_is_new) {
    CUcontext context = nullptr;
    real.ctx_get_current(&context);
    session->registered_in.store(context);
  }
  session->word_address.store(board_address + offset);
  session->gate_address.store(board_address + offset, std::memory_order_release);
  return true;
}

CUresult enqueue_wait(const Session* session, CUstream stream, CUdeviceptr address) {
  if (session->wait64) return real.stream_wait_value64(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ);
  const CUresult result = real.stream_wait_value32(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ);
  return result != CUDA_SUCCESS ? result : real.stream_wait_value32(stream, address + 4, 0, CU_STREAM_WAIT_VALUE_EQ);
}

void gated_inside(StreamState* stream, std::uint64_t cost_ns) {
  stream->since_gate_ns.store(cost_ns, std::memory_order_relaxed);
}

bool gate(StreamState* stream, std::uint64_t cost_ns) {
  Session* session = stream->session;
  // Also while nobody can hold it: what runs when somebody comes has no gate behind it.
  if (cost_ns > session->self->tail_ns.load(std::memory_order_relaxed))
    session->self->tail_ns.store(cost_ns, std::memory_order_relaxed);
  if (session->ungated.load(std::memory_order_relaxed)) return false;
  if (!session->can_be_held.load(std::memory_order_relaxed)) return true;  // by nobody now: no wait is needed
  const std::uint64_t since = stream->since_gate_ns.load(std::memory_order_relaxed);
  const bool closed = session->self->gate.load(std::memory_order_relaxed) != 0;
  // While closed, one wait a closure is enough to stop the stream; the spacing rule covers what is queued behind it.
  const std::uint64_t closure = closed ? session->self->closed_ns.load(std::memory_order_relaxed) | 1 : 0;
  const bool stop_now = closed && stream->gated_closure.load(std::memory_order_relaxed) != closure;
  if (!stop_now && since + cost_ns <= session->quantum_ns.load(std::memory_order_relaxed)) {
    stream->since_gate_ns.store(since + cost_ns, std::memory_order_relaxed);
    return true;
  }
  if (!register_memory(session)) return false;
  const CUdeviceptr address = session->gate_address.load(std::memory_order_acquire);
  if (address == 0) return false;  // a context ended meanwhile: registered again at the next launch
  const CUresult result = enqueue_wait(session, stream->handle, address);
  if (result != CUDA_SUCCESS) {
    give_up(session, board::Bypass::kNoMemOps, result);
    return false;
  }
  session->self->counters.gates.fetch_add(1, std::memory_order_relaxed);
  // What can run on after the gate closes; decays, so that one long kernel does not count for ever.
  const std::uint64_t tail = session->self->tail_ns.load(std::memory_order_relaxed);
  const std::uint64_t piece = since >> 62 ? cost_ns : since;
  session->self->tail_ns.store(piece > tail ? piece : tail - (tail - piece) / 16, std::memory_order_relaxed);
  stream->since_gate_ns.store(cost_ns, std::memory_order_relaxed);
  stream->gated_closure.store(closure, std::memory_order_relaxed);
  return true;
}

void enqueue_marker(StreamState* stream) {
  Session* session = stream->session;
  if (!stream->marker_lock.try_lock()) return;  // another thread is at it
  const std::uint32_t value = stream->marker_value.load(std::memory_order_relaxed) + 1;
  if (value - stream->marker_seen.load() < kMarkers && register_memory(session)) {
    stream->marker_targets[value % kMarkers].store(stream->submitted.load());
    const CUdeviceptr address = session->marker_address + 4 * static_cast<CUdeviceptr>(stream->index);
    if (real.stream_write_value32(stream->handle, address, value, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS) {
      stream->marker_value.store(value);
    }
  }
  stream->marker_lock.unlock();
}

void mark_progress(StreamState* stream, std::uint64_t cost_ns) {
  Session* session = stream->session;
  if (!session->contended.load(std::memory_order_relaxed)) return;
  const std::uint64_t since = stream->since_marker_ns.load(std::memory_order_relaxed) + cost_ns;
  if (since < kMarkerEveryNs) {
    stream->since_marker_ns.store(since, std::memory_order_relaxed);
    return;
  }
  stream->since_marker_ns.store(0, std::memory_order_relaxed);
  enqueue_marker(stream);
}

}  // namespace sluice::shim
