// The two threads of an interposed process. The pump never calls the driver, so it can always open and close gates;
// the marker thread finds out about work that nobody waits for, and may block in the driver.
#include <pthread.h>
#include <signal.h>

#include "preempt.h"
#include "real.h"
#include "session.h"

namespace sluice::shim {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

// A thread's alarm clock. wake() costs one atomic exchange when it is already on its way.
class Alarm {
 public:
  void wake() {
    if (rung_.exchange(true)) return;
    Guard guard(mutex_);
    pthread_cond_signal(&condition_);
  }
  // Before the first sleep: makes it immune to changes of the time of day.
  void start() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  void sleep(std::uint64_t ns) {
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const std::uint64_t end = static_cast<std::uint64_t>(until.tv_nsec) + (ns == kNever ? kNanosPerSecond : ns);
    until.tv_sec += static_cast<time_t>(end / kNanosPerSecond);
    until.tv_nsec = static_cast<long>(end % kNanosPerSecond);
    mutex_.lock();
    if (!rung_.load()) pthread_cond_timedwait(&condition_, mutex_.native(), &until);
    mutex_.unlock();
    rung_.store(false);
  }

 private:
  Mutex mutex_;
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
  std::atomic<bool> rung_{false};
};

Alarm pump_alarm, marker_alarm;
std::atomic<bool> started{false};
alignas(4096) volatile std::uint32_t marker_words[kStreams];

void* pump(void*) {
  while (enabled()) {
    std::uint64_t tick = kNever;
    for (int i = 0; Session* session = session_at(i); ++i) {
      const std::uint64_t wanted = tend(session, now_ns());
      if (wanted < tick) tick = wanted;
    }
    pump_alarm.sleep(tick);
  }
  return nullptr;
}

// Looks at every stream: takes in markers that the GPU has written, and marks streams that have gone quiet with work
// outstanding and nobody waiting for it. REQUIRES: driver_lock held, so that no stream goes meanwhile.
enum class Outstanding { kNone, kSome, kHolding };  // the last: and jobs below are held meanwhile
Outstanding look_at_streams() {
  Outstanding found = Outstanding::kNone;
  for (int i = 0; i < stream_count(); ++i) {
    StreamState* stream = stream_at(i);
    const Session* session = stream != nullptr ? stream->session.load() : nullptr;
    if (session == nullptr || !session->contended.load()) continue;
    const std::uint32_t written = marker_word(i);
    if (static_cast<std::int32_t>(written - stream->marker_seen.load()) > 0) {
      stream->marker_seen.store(written);
      completed(stream, stream->marker_targets[written % kMarkers].load());
    }
    const std::uint64_t submitted = stream->submitted.load();
    if (stream->completed.load() >= submitted) continue;
    if (found == Outstanding::kNone) found = Outstanding::kSome;
    if (session->can_hold.load()) found = Outstanding::kHolding;
    // The last marker says when all is done, or there is none yet for what was submitted last.
    const std::uint32_t last = stream->marker_value.load();
    if (last != stream->marker_seen.load() && stream->marker_targets[last % kMarkers].load() >= submitted) continue;
    const bool quiet = stream->quiet_submitted == submitted && stream->waiters.load() == 0;
    stream->quiet_submitted = submitted;
    // The per-thread stream's handle means another stream in this thread: its own thread marks it, while there is one.
    if (quiet && thread_is_gone(*stream)) {
      forget(stream);
      continue;
    }
    if (!quiet || stream->handle == CU_STREAM_PER_THREAD || any_capture()) continue;
    if (real.ctx_set_current(stream->context) == CUDA_SUCCESS) enqueue_marker(stream);
  }
  return found;
}

void* marker(void*) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (real.exchange_capture_mode != nullptr) real.exchange_capture_mode(&mode);
  // Nobody wakes this thread on the path of a launch, so it looks by itself: often while others are held for work
  // whose end nobody waits for, seldom when nothing was submitted for a while.
  constexpr std::uint64_t kHoldingTickNs = 200'000, kBusyTickNs = 2'000'000, kCalmTickNs = 20'000'000;
  constexpr int kCalmAfter = 500;
  int calm = 0;
  while (enabled()) {
    bool contended = false;
    for (int i = 0; Session* session = session_at(i); ++i) contended |= session->contended.load();
    Outstanding found = Outstanding::kSome;
    if (driver_lock().try_lock()) {  // else the application is destroying something: next time
      found = look_at_streams();
      collect_samples();
      driver_lock().unlock();
    }
    calm = found == Outstanding::kNone ? calm + 1 : 0;
    const std::uint64_t tick = found == Outstanding::kHolding   ? kHoldingTickNs
                               : contended && calm < kCalmAfter ? kBusyTickNs
                                                                : kCalmTickNs;
    marker_alarm.sleep(tick);
  }
  return nullptr;
}

}  // namespace

void start_thread(void* (*function)(void*)) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_create(&thread, &attributes, function, nullptr);
  pthread_attr_destroy(&attributes);
}

void start_threads() {
  if (started.exchange(true)) return;
  pump_alarm.start();
  marker_alarm.start();
  sigset_t all, before;  // the application's signals are for its own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  start_thread(pump);
  start_thread(marker);
  start_preemption();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void wake_pump() { pump_alarm.wake(); }
void wake_marker() { marker_alarm.wake(); }

std::uint32_t marker_word(int stream_index) { return __atomic_load_n(&marker_words[stream_index], __ATOMIC_ACQUIRE); }
void* marker_memory() { return const_cast<std::uint32_t*>(marker_words); }
std::size_t marker_bytes() { return sizeof marker_words; }

}  // namespace sluice::shim
