#include "held_wait.h"

#include <sched.h>
#include <time.h>

#include "real.h"
#include "session.h"

namespace sluice::shim {
namespace {

// While closed, a thread sleeps this part of the time it has been closed for: so late it is seen that it opened.
constexpr std::uint64_t kSleepShare = 16;
constexpr std::uint64_t kShortestSleepNs = 50'000, kLongestSleepNs = 1'000'000;

bool spins(const Session* session) {
  if (session == nullptr || !session->can_be_held.load(std::memory_order_relaxed) || session->ungated.load())
    return false;
  unsigned flags = 0;
  if (real.ctx_get_flags == nullptr || real.ctx_get_flags(&flags) != CUDA_SUCCESS) return false;
  return (flags & CU_CTX_SCHED_MASK) != CU_CTX_SCHED_BLOCKING_SYNC;
}

bool is_closed(const Session* session) { return session->self->gate.load(std::memory_order_relaxed) != 0; }

// Between two questions.
void rest(const Session* session) {
  if (!is_closed(session)) {
    sched_yield();
    return;
  }
  const std::uint64_t now = now_ns(), closed_at = session->self->closed_ns.load(std::memory_order_relaxed);
  std::uint64_t sleep = (closed_at < now ? now - closed_at : 0) / kSleepShare;
  if (sleep < kShortestSleepNs) sleep = kShortestSleepNs;
  if (sleep > kLongestSleepNs) sleep = kLongestSleepNs;
  const timespec duration{0, static_cast<long>(sleep)};
  nanosleep(&duration, nullptr);  // a signal only ends it early
}

template <class Done>
void wait_until(const Session* session, Done done) {
  if (!spins(session)) return;
  while (enabled() && session->can_be_held.load(std::memory_order_relaxed) && !done()) rest(session);
}

}  // namespace

void await_stream(StreamState* stream) {
  if (real.stream_query == nullptr) return;
  wait_until(stream->session, [&] { return real.stream_query(stream->handle) != CUDA_ERROR_NOT_READY; });
}

void await_submission(StreamState* stream, std::uint64_t submission) {
  // A per-thread default stream's handle means another stream in this thread.
  if (real.stream_query == nullptr || stream->handle == CU_STREAM_PER_THREAD) return;
  const std::uintptr_t key = stream->key.load();
  wait_until(stream->session, [&] {
    if (stream->completed.load() >= submission) return true;
    if (!driver_lock().try_lock()) return false;
    const bool done = stream->key.load() != key || real.stream_query(stream->handle) != CUDA_ERROR_NOT_READY;
    driver_lock().unlock();
    return done;
  });
}

void await_event(CUevent event, StreamState* stream) {
  if (real.event_query == nullptr) return;
  wait_until(stream->session, [&] { return real.event_query(event) != CUDA_ERROR_NOT_READY; });
}

}  // namespace sluice::shim
