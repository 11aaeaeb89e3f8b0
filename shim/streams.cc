// Which stream is meant, and what is known of it.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "real.h"
#include "session.h"
#include "takeover.h"

namespace sluice::shim {

namespace {

constexpr int kBuckets = 512;
constexpr int kCached = 16;

StreamState streams[kStreams];
std::atomic<int> used{0};
int buckets[kBuckets];                // 1 + index of the first stream; 0: empty
int free_first = -1, free_last = -1;  // oldest first
std::uint64_t swept_ns = 0;           // when the table was last found full
Mutex table_lock;

std::atomic<int> captures{0};
Mutex driver_mutex;

// Each thread's last streams, direct-mapped. Trivial type: no destructor runs when the thread ends.
struct Cached {
  std::uintptr_t key;
  StreamState* stream;
};
thread_local Cached cache[kCached];
thread_local std::uintptr_t thread_number;

std::size_t slot_of(std::uintptr_t key, std::size_t slots) { return (key * 0x9e3779b97f4a7c15ull >> 32) % slots; }

// Keys of real handles are addresses, hence even; keys of default streams are made odd and mixed with the context.
std::uintptr_t default_key(CUcontext context, bool per_thread) {
  std::uintptr_t key = reinterpret_cast<std::uintptr_t>(context) * 0x9e3779b97f4a7c15ull;
  if (per_thread) {
    if (thread_number == 0) {
      static std::atomic<std::uintptr_t> next{1};
      thread_number = next.fetch_add(1);
    }
    key ^= thread_number * 0xff51afd7ed558ccdull;
  }
  return key << 2 | (per_thread ? 3u : 1u);
}

StreamState* look_up(std::uintptr_t key) {
  for (int at = buckets[slot_of(key, kBuckets)]; at != 0; at = streams[at - 1].next) {
    if (streams[at - 1].key.load(std::memory_order_relaxed) == key) return &streams[at - 1];
  }
  return nullptr;
}

void remove(StreamState* stream);

// Frees what belonged to threads that are gone, at most ten times a second. REQUIRES: table_lock held.
void sweep() {
  const std::uint64_t now = now_ns();
  if (now < swept_ns + kNanosPerSecond / 10) return;
  swept_ns = now;
  for (StreamState& stream : streams) {
    if (!thread_is_gone(stream)) continue;
    set_capturing(&stream, false);
    remove(&stream);
  }
}

// A free index, preferably one for which no late marker of its last owner is to come; -1: none.
// REQUIRES: table_lock held.
int take_index() {
  if (free_first < 0 && used.load() == kStreams) sweep();
  int before = -1, index = free_first;
  while (index >= 0 && marker_word(index) != streams[index].marker_value.load()) {
    before = index;
    index = streams[index].next;
  }
  if (index < 0) {
    if (used.load() < kStreams || free_first < 0) return used.load() < kStreams ? used.load() : -1;
    before = -1;
    index = free_first;
  }
  const int after = streams[index].next;
  if (before < 0) free_first = after;
  if (before >= 0) streams[before].next = after;
  if (index == free_last) free_last = before;
  return index;
}

// A state that only look_up's chain knows yet: the caller fills it in and stores its key, which shows it to the marker
// thread. What a call into the driver still has in hand from its last owner does no harm: counts go on from there, and
// who waited counts itself out. REQUIRES: table_lock held.
StreamState* insert(std::uintptr_t key) {
  const int index = take_index();
  if (index < 0) return nullptr;
  StreamState& stream = streams[index];
  stream.index = index;
  stream.completed.store(stream.submitted.load());
  stream.since_gate_ns.store(~std::uint64_t{0} >> 1);  // the first submission is gated
  stream.gated_closure.store(0);
  stream.since_marker_ns.store(0);
  stream.capturing.store(false);
  stream.captured_by.store(0);
  stream.marker_seen.store(stream.marker_value.load());
  std::size_t bucket = slot_of(key, kBuckets);
  stream.next = buckets[bucket];
  buckets[bucket] = index + 1;
  if (index == used.load()) used.store(index + 1);
  return &stream;
}

// REQUIRES: table_lock held.
void remove(StreamState* stream) {
  int* link = &buckets[slot_of(stream->key.load(), kBuckets)];
  while (*link != 0 && *link != stream->index + 1) link = &streams[*link - 1].next;
  if (*link == 0) return;
  *link = stream->next;
  stream->key.store(0);
  stream->next = -1;
  if (free_last >= 0) {
    streams[free_last].next = stream->index;
  } else {
    free_first = stream->index;
  }
  free_last = stream->index;
}

}  // namespace

void forget(StreamState* stream) {
  set_capturing(stream, false);
  Session* session = stream->session;
  const std::uint64_t all = stream->submitted.load();
  if (session != nullptr) completed(stream, all);
  Guard guard(table_lock);
  remove(stream);
}

bool thread_is_gone(const StreamState& stream) {
  return stream.key.load() != 0 && stream.handle == CU_STREAM_PER_THREAD &&
         syscall(SYS_tgkill, getpid(), stream.thread.load(), 0) != 0 && errno == ESRCH;
}

StreamState* find_stream(CUstream handle, bool per_thread) {
  const bool is_per_thread = handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread);
  const bool is_default = handle == nullptr || handle == CU_STREAM_LEGACY || is_per_thread;
  CUcontext context = nullptr;
  std::uintptr_t key = reinterpret_cast<std::uintptr_t>(handle);
  if (is_default) {
    if (real.ctx_get_current(&context) != CUDA_SUCCESS || context == nullptr) return nullptr;
    key = default_key(context, is_per_thread);
  }
  Cached& cached = cache[slot_of(key, kCached)];
  if (cached.key == key && cached.stream->key.load(std::memory_order_relaxed) == key) return cached.stream;

  if (!is_default) {
    // No stream of this name: the call is about to fail, and must leave nothing behind.
    if (real.stream_get_ctx != nullptr && real.stream_get_ctx(handle, &context) != CUDA_SUCCESS) return nullptr;
    if (context == nullptr && real.ctx_get_current(&context) != CUDA_SUCCESS) return nullptr;
    if (context == nullptr) return nullptr;
  }
  StreamState* stream;
  {
    Guard guard(table_lock);
    stream = look_up(key);
    if (stream == nullptr) {
      stream = insert(key);
      if (stream == nullptr) return nullptr;
      stream->context = context;
      stream->handle = is_per_thread ? CU_STREAM_PER_THREAD : is_default ? CU_STREAM_LEGACY : handle;
      stream->thread.store(is_per_thread ? static_cast<int>(syscall(SYS_gettid)) : 0);
      stream->session = attach(context);
      stream->key.store(key);
    }
  }
  cached.stream = stream;
  cached.key = key;
  return stream;
}

void forget_stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return;
  StreamState* stream;
  {
    Guard guard(table_lock);
    stream = look_up(reinterpret_cast<std::uintptr_t>(handle));
  }
  if (stream == nullptr) return;
  Guard driver(driver_mutex);  // the marker thread is not using it now, and will not find it later
  forget(stream);
}

void forget_addresses() {
  for (int i = 0; Session* session = session_at(i); ++i) session->gate_address.store(0);
}

void forget_context(CUcontext context) {
  Guard driver(driver_mutex);
  forget_context_locked(context);
}

void forget_context_locked(CUcontext context) {
  drop_samples(context);
  forget_takeover(context);
  forget_addresses();
  for (int i = 0; i < used.load(); ++i) {
    // Where any may have gone, who captures most likely has not, and the capture goes on.
    const bool goes = context == nullptr ? !streams[i].capturing.load() : streams[i].context == context;
    if (streams[i].key.load() != 0 && goes) forget(&streams[i]);
  }
}

StreamState* stream_at(int index) {
  return index < used.load() && streams[index].key.load() != 0 ? &streams[index] : nullptr;
}
int stream_count() { return used.load(); }

bool is_capturing(const StreamState& stream) {
  if (captures.load(std::memory_order_relaxed) == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // An error here means "implicitly part of a capture": not a moment to enqueue anything of ours either.
  return real.stream_is_capturing(stream.handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void capture_begins() {
  Guard guard(driver_mutex);
  captures.fetch_add(1);
}
void set_capturing(StreamState* stream, bool capturing) {
  // One that begins while another seems to go on: that one ended unseen, with its stream.
  if (stream->capturing.exchange(capturing)) capture_ended();
}
void capture_ended() {
  int now = captures.load();
  while (now > 0 && !captures.compare_exchange_weak(now, now - 1)) {
  }
}
bool any_capture() { return captures.load() != 0; }
Mutex& driver_lock() { return driver_mutex; }

}  // namespace sluice::shim
