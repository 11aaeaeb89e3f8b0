// Activity and holds; see session.h for the protocol.
#include "session.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "boards_variable.h"
#include "channel_groups.h"
#include "preempt.h"
#include "real.h"
#include "say.h"

namespace sluice::shim {
namespace {

struct Managed : Place {
  board::Board* looked_at;  // mapped to read the limit before there is a session; guarded by attach_lock
};

Managed managed[kSessions];
int managed_count = 0;
std::atomic<bool> running{false};

Session sessions[kSessions];
std::atomic<int> session_used{0};
Mutex attach_lock;

std::atomic<bool> said_foreign{false}, said_board{false}, said_slot{false};

void format_uuid(const CUuuid& uuid, char* out, std::size_t bytes) {
  const unsigned char* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  std::snprintf(out, bytes, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

bool all_done(const Session* session) {
  for (int i = 0; i < stream_count(); ++i) {
    const StreamState* stream = stream_at(i);
    if (stream != nullptr && stream->session == session && stream->completed.load() < stream->submitted.load())
      return false;
  }
  return true;
}

// The burst is over unless something was submitted meanwhile.
void become_idle(Session* session, std::uint64_t now) {
  Guard guard(session->activity);
  if (session->self->active.load() == 0) return;
  session->self->active.store(0);
  if (!all_done(session)) {
    session->self->active.store(1);
    return;
  }
  session->idle_since.store(0);
  if (session->can_hold.load()) board::release_held(session->board, session->client, now);
}

std::uint64_t linger_ns(const Session* session) { return session->board->linger_ns.load(std::memory_order_relaxed); }

// Slow half of submitting(): the first submission after idleness. Returns whether it holds others from now on.
bool become_active(Session* session) {
  const std::uint64_t now = now_ns();
  Guard guard(session->activity);
  session->idle_since.store(0);
  if (session->self->active.load() != 0) return false;
  bool holds = false;
  session->self->active_ns.store(now);
  session->self->progress_ns.store(now);
  if (session->can_hold.load(std::memory_order_relaxed)) {
    holds = board::hold_below(session->board, session->client, now, &session->holding) > 0;
  }
  session->self->active.store(1);  // last: another thread that sees it submits at once
  return holds;
}

// Sets again what a lost bit, a drop or a mute may have taken away.
void hold_again(Session* session, std::uint64_t now) {
  if (!session->can_hold.load(std::memory_order_relaxed) || session->self->active.load() == 0) return;
  Guard guard(session->activity);
  if (session->self->active.load() == 0) return;
  if (!board::hold_again(session->board, session->client, session->holding, now)) return;
  board::hold_below(session->board, session->client, now, &session->holding);
}

}  // namespace

bool enabled() { return running.load(std::memory_order_relaxed); }

bool configure() {
  const char* disable = std::getenv("SLUICE_DISABLE");
  const char* boards = std::getenv("SLUICE_BOARDS");
  if ((disable != nullptr && std::strcmp(disable, "1") == 0) || boards == nullptr) return false;
  while (managed_count < kSessions && next_place(&boards, &managed[managed_count])) ++managed_count;
  running.store(managed_count > 0 && real.mem_ops);
  static std::atomic<bool> said{false};
  if (managed_count > 0 && !real.mem_ops) {
    say_once(&said, "this driver has no stream memory operations (515 or newer has): this job is not gated");
  }
  return running.load();
}

void shut_down() {
  if (!running.exchange(false)) return;
  end_preemption();
  wake_pump();
  wake_marker();
  for (int i = 0; i < session_used.load(); ++i) board::leave(sessions[i].board, sessions[i].client);
}

void stop_after_fork() {
  running.store(false);
  channel_groups::stop_following();
}

Session* session_at(int index) {
  return index < session_used.load(std::memory_order_acquire) ? &sessions[index] : nullptr;
}

Session* attach(CUcontext context) {
  CUcontext current = nullptr;
  CUdevice device = 0;
  if (real.ctx_get_current(&current) != CUDA_SUCCESS || current != context) return nullptr;
  if (real.ctx_get_device(&device) != CUDA_SUCCESS) return nullptr;
  return attach_device(device);
}

namespace {

Session* find_session(CUdevice device) {
  for (int i = 0; Session* session = session_at(i); ++i) {
    if (session->device == device) return session;
  }
  return nullptr;
}

// What SLUICE_BOARDS says of that device, or null.
Managed* find_managed(CUdevice device, char (&uuid_text)[48]) {
  CUuuid uuid;
  if (real.device_get_uuid(&uuid, device) != CUDA_SUCCESS) return nullptr;
  format_uuid(uuid, uuid_text, sizeof uuid_text);
  for (int i = 0; i < managed_count; ++i) {
    if (std::strcmp(managed[i].uuid, uuid_text) == 0) return &managed[i];
  }
  return nullptr;
}

}  // namespace

bool memory_limit(CUdevice device, MemoryLimit* out) {
  const board::Board* board = nullptr;
  int job = -1;
  if (const Session* session = find_session(device)) {
    board = session->board;
    job = session->job;
  } else {
    Guard guard(attach_lock);
    char text[48];
    Managed* entry = find_managed(device, text);
    if (entry == nullptr || entry->job < 0 || entry->job >= board::kJobs) return false;
    if (entry->looked_at == nullptr) {
      Result<board::Board*> mapped = board::map(entry->path);
      if (!mapped.ok()) return false;
      entry->looked_at = *mapped;
    }
    board = entry->looked_at;
    job = entry->job;
  }
  out->limit_bytes = board->jobs[job].memory_limit_bytes.load();
  if (out->limit_bytes == 0) return false;
  out->used_bytes = board::memory_of(board, job);
  return true;
}

Session* attach_device(CUdevice device) {
  if (Session* session = find_session(device)) return session;
  Guard guard(attach_lock);
  if (Session* session = find_session(device)) return session;
  char text[48] = "this GPU";
  const Managed* entry = find_managed(device, text);
  if (entry == nullptr) {
    say_once(&said_foreign, "%s was not given to this job: its use there is not managed", text);
    return nullptr;
  }
  Result<board::Board*> mapped = board::map(entry->path);
  if (!mapped.ok()) {
    say_once(&said_board, "not managed: %s", mapped.status().message());
    return nullptr;
  }
  Result<int> client = board::claim_client(*mapped, entry->job, own_identity());
  if (!client.ok()) {
    say_once(&said_slot, "not managed: %s", client.status().message());
    board::unmap(*mapped);
    return nullptr;
  }
  const int index = session_used.load();
  if (index == kSessions) return nullptr;
  Session& session = sessions[index];
  session.board = *mapped;
  session.client = *client;
  session.self = &session.board->clients[session.client];
  session.job = entry->job;
  session.device = device;
  int wait64 = 0;
  real.device_get_attribute(&wait64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device);
  session.wait64 = wait64 != 0 && real.stream_wait_value64 != nullptr;
  session.is_high = session.board->jobs[session.job].priority.load() >= board::kHighPriority;
  refresh(&session);
  // Handlers run in reverse order: registered now, after the driver's own, this opens the gate before the driver ends
  // its contexts, which may wait for what is parked at it.
  if (index == 0) std::atexit(shut_down);
  session_used.store(index + 1, std::memory_order_release);
  start_threads();
  return &session;
}

void refresh(Session* session) {
  // One at a time: the slower of two could leave what it saw earlier under the epoch of the faster one.
  Guard membership(session->membership);
  board::Board* board = session->board;
  const std::uint32_t epoch = board->epoch.load();
  const std::int32_t mine = board->jobs[session->job].priority.load();
  bool contended = false, can_be_held = false, can_hold = false;
  for (int i = 0; i < board::kClients; ++i) {
    const board::Client& other = board->clients[i];
    if (i == session->client || other.live.load() == 0) continue;
    const std::uint32_t job = other.job.load();
    if (job >= static_cast<std::uint32_t>(board::kJobs) || static_cast<int>(job) == session->job) continue;
    const std::int32_t priority = board->jobs[job].priority.load();
    contended = true;
    if (priority >= mine) can_be_held = true;
    if (priority < mine) can_hold = true;
  }
  // A job above may hold it on another of its GPUs, and the daemon then here too.
  if (board->jobs[session->job].gpus.load() > 1) contended = can_be_held = true;
  session->quantum_ns.store(board->quantum_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  session->contended.store(contended);
  session->can_be_held.store(can_be_held);
  const bool could_hold = session->can_hold.exchange(can_hold);
  session->epoch_seen.store(epoch);
  const std::uint64_t now = now_ns();
  if (could_hold && !can_hold) {
    Guard guard(session->activity);
    board::release_held(board, session->client, now);
  }
  hold_again(session, now);
}

bool submitting(StreamState* stream) {
  Session* session = stream->session;
  stream->submitted.fetch_add(1);
  if (session->board->epoch.load(std::memory_order_relaxed) != session->epoch_seen.load(std::memory_order_relaxed))
    refresh(session);
  return (session->self->active.load() == 0 || session->idle_since.load(std::memory_order_relaxed) != 0) &&
         become_active(session);
}

void completed(StreamState* stream, std::uint64_t submission) {
  Session* session = stream->session;
  if (session == nullptr) return;  // the state went to a stream of a GPU that is not managed
  std::uint64_t before = stream->completed.load();
  while (before < submission && !stream->completed.compare_exchange_weak(before, submission)) {
  }
  if (before >= submission) return;
  const std::uint64_t now = now_ns();
  session->self->progress.fetch_add(1);
  session->self->progress_ns.store(now);
  if (!all_done(session)) {
    if (session->self->dropped_at.load(std::memory_order_relaxed) != 0) hold_again(session, now);
    return;
  }
  const std::uint64_t linger = session->can_hold.load(std::memory_order_relaxed) ? linger_ns(session) : 0;
  if (linger == 0) {
    become_idle(session, now);
    return;
  }
  session->idle_since.store(now);
  wake_pump();
}

std::uint64_t tend(Session* session, std::uint64_t now) {
  constexpr std::uint64_t kContendedTickNs = 20'000'000, kAloneTickNs = 100'000'000;
  std::uint64_t tick = session->contended.load() ? kContendedTickNs : kAloneTickNs;
  if (session->board->epoch.load() != session->epoch_seen.load()) refresh(session);
  if (session->self->gate.load() != 0) board::check_holders(session->board, session->client, now);

  const std::uint64_t idle_since = session->idle_since.load();
  if (idle_since != 0) {
    const std::uint64_t end = idle_since + linger_ns(session);
    if (now >= end) {
      become_idle(session, now);
    } else if (end - now < tick) {
      tick = end - now;
    }
  }
  hold_again(session, now);
  // Muted by the daemon for the benefit of those below: hold again as soon as that is over.
  const std::uint64_t muted = session->self->muted_until_ns.load();
  if (muted > now && muted - now < tick) tick = muted - now;
  return tick;
}

}  // namespace sluice::shim
