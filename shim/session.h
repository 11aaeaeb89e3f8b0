// This process on the boards of the GPUs it uses: activity, holds, gates. The heart of the shim.
//
// A Session is this process's client slot on one GPU's board; it is made at the first submission to that GPU and lives
// until the process ends. A StreamState follows one stream. Everything is in static storage: the shim never allocates.
//
// Activity protocol (model-checked in board/model). Submitting: submitted += 1; if not active, take the lock, close
// the gates below and become active. Completing: completed = what was submitted before the call that waited; if nothing
// is outstanding, take the lock, become inactive, look again, and open the gates. Both sides use sequentially
// consistent operations, so either the submitter sees "not active" or the completer sees the new submission.
//
// Thread safety: everything here may be called from any thread of the application.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "costs.h"
#include "lock.h"
#include "sluice/base/clock.h"
#include "sluice/board.h"

namespace sluice::shim {

struct Session {
  board::Board* board = nullptr;
  board::Client* self = nullptr;
  int client = -1;
  int job = -1;
  CUdevice device = -1;

  // What the board looked like at epoch_seen; refresh() follows it.
  std::atomic<std::uint32_t> epoch_seen{0};
  std::atomic<bool> contended{false};    // another job has a client on this GPU
  std::atomic<bool> can_be_held{false};  // one of them has at least this job's priority
  std::atomic<bool> can_hold{false};     // one of them has less

  // Where the GPU finds the gate and the marker words; 0 until the memory is registered.
  std::atomic<CUdeviceptr> gate_address{0};
  CUdeviceptr marker_address = 0;
  // What gates inside of graphs wait for: the same word. It stays valid as long as the context in which the memory was
  // registered, though gate_address may be 0 for a while.
  std::atomic<CUdeviceptr> word_address{0};
  std::atomic<CUcontext> registered_in{nullptr};
  bool is_high = false;  // had kHighPriority or more when it came to the board
  bool wait64 = false;
  std::atomic<bool> ungated{false};  // gates are impossible or wrong here: Client::bypass says why

  board::Holding holding;                    // guarded by `activity`
  Mutex activity;                            // transitions of self->active
  Mutex membership;                          // what is read off the board, taken before `activity`
  std::atomic<std::uint64_t> idle_since{0};  // nothing outstanding since then, but still lingering; else 0
  std::atomic<std::uint64_t> quantum_ns{board::kDefaultQuantumNs};
};

inline constexpr std::uint32_t kMarkers = 64;  // in flight, a stream

struct StreamState {
  std::atomic<std::uintptr_t> key{0};  // the handle, or for the default streams a value made from context and thread
  // Explicit: never the null handle, whose meaning depends on the entry point. Atomic, as are its neighbours: a wait
  // can still read the state of a stream that went while another takes it.
  std::atomic<CUstream> handle{nullptr};
  // Atomic, because who looks at all streams may look at one that is just being given to a new stream.
  std::atomic<CUcontext> context{nullptr};
  std::atomic<Session*> session{nullptr};  // null: this GPU is not managed
  int index = 0;                           // of its marker word
  int next = 0;                            // in its hash bucket

  std::atomic<std::uint64_t> submitted{0};  // only grows, also when another stream takes over this state
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> since_gate_ns{0};
  std::atomic<std::uint64_t> gated_closure{0};  // closed_ns of the closure that this stream already waits for
  std::atomic<std::uint64_t> since_marker_ns{0};
  std::atomic<std::uint32_t> waiters{0};  // threads inside a call that waits for this stream, or for its last owner
  std::atomic<bool> capturing{false};
  std::atomic<std::uint64_t> captured_by{0};     // id of the capture that the next is about
  std::atomic<std::uint32_t> captured_since{0};  // submissions since its last gate in this stream
  std::atomic<int> thread{0};                    // kernel's number of the thread whose default stream this is

  // Markers in flight: value v, written by the GPU behind the work, means that submission marker_targets[v % kMarkers]
  // is done. Values only grow, also when another stream takes over this state.
  Mutex marker_lock;                           // held from choosing a value to its place in the stream
  std::atomic<std::uint32_t> marker_value{0};  // the last one enqueued
  std::atomic<std::uint32_t> marker_seen{0};   // the last one seen written
  std::atomic<std::uint64_t> marker_targets[kMarkers]{};
  std::uint64_t quiet_submitted = 0;  // marker thread only: submitted at its last look
};

// ---- process ----

// False once the process exits, forked, or was never managed: every wrapper then only passes through.
bool enabled();
// Reads SLUICE_BOARDS. Called once by the constructor. False: nothing to manage, pass through.
bool configure();
// Stops everything without a call into the driver. Called when the process exits.
void shut_down();
// In the child of a fork: the driver is unusable there and the threads are gone, so pass everything through.
void stop_after_fork();

// ---- streams ----

// The state of the stream that `handle` means in the current context; null where it is not managed or there are too
// many. `per_thread`: the entry point reads the null handle as the calling thread's default stream.
StreamState* find_stream(CUstream handle, bool per_thread);
// The application destroyed it: forget it. REQUIRES: called before the driver's destroy.
void forget_stream(CUstream handle);
// A context is about to go: its streams and samples with it. Null: any may have gone, but for streams that capture.
void forget_context(CUcontext context);
void forget_context_locked(CUcontext context);  // REQUIRES: driver_lock held
// Memory may no longer be registered: register it again before it is used next. Where it still is, the driver says so
// then, and the context in which it was registered remains known.
void forget_addresses();
// Removes a state from the table, its work counted as done. REQUIRES: driver_lock held.
void forget(StreamState* stream);
// Whether it is the default stream of a thread that has ended; the driver gives it up with the thread.
bool thread_is_gone(const StreamState& stream);
// Counts `stream` among those capturing, or not any more.
void set_capturing(StreamState* stream, bool capturing);
// The stream with that index, null past the last one or if it is free; for loops over all streams.
StreamState* stream_at(int index);
int stream_count();

// Whether work submitted to `stream` now would be captured instead of run. Costs nothing while nobody captures.
bool is_capturing(const StreamState& stream);
// Begin and end of a capture on a stream, around the driver's own call.
void capture_begins();
void capture_ended();
bool any_capture();
// Taken by the marker thread around its driver calls, and by capture_begins and the calls that destroy.
Mutex& driver_lock();

// ---- activity ----

// The session of the GPU that `context` is on, made now if need be; null where it is not managed.
// REQUIRES: `context` is the current one.
Session* attach(CUcontext context);
// The session of a device, likewise; any context may be current, or none.
Session* attach_device(CUdevice device);
// A job's limit and use on a device, without a session; false where it is not managed or the job has no limit.
struct MemoryLimit {
  std::uint64_t limit_bytes, used_bytes;
};
bool memory_limit(CUdevice device, MemoryLimit* out);
// Before a submission: counts it, becomes active, holds those below. After it: see costs.h. Returns whether it took the
// GPU over: others are held from now on.
bool submitting(StreamState* stream);
// Everything up to `submission` of this stream is done.
void completed(StreamState* stream, std::uint64_t submission);
// Ends the linger when it is over; re-asserts holds that were dropped or muted. Called by the pump.
// Returns when it wants to be called again, in ns from now.
std::uint64_t tend(Session* session, std::uint64_t now);
// Follows the board's membership.
void refresh(Session* session);

// ---- gates ----

// Enqueues a wait on this process's gate if one is due before `cost_ns` more work. Returns whether the submission is
// behind a gate, or would be if there were a job that could hold this one.
bool gate(StreamState* stream, std::uint64_t cost_ns);
// The submission that gate() was asked for has gates inside, and `cost_ns` behind the last of them.
void gated_inside(StreamState* stream, std::uint64_t cost_ns);
// After a submission: counts towards the next marker, and enqueues it when it is due.
void mark_progress(StreamState* stream, std::uint64_t cost_ns);
// Enqueues the wait itself: until the gate word at `address` is 0.
CUresult enqueue_wait(const Session* session, CUstream stream, CUdeviceptr address);
// Registers board and marker memory with the current context's driver, once. False if that is impossible.
bool register_memory(Session* session);

// ---- threads (threads.cc) ----

void start_threads();
// A detached thread of this process, with a small stack. REQUIRES: the caller has blocked all signals.
void start_thread(void* (*function)(void*));
void wake_pump();  // ends its sleep; costs a system call only if it sleeps
void wake_marker();
// Enqueues a marker behind the work of `stream`, unless too many are in flight. The caller may block in the driver.
// REQUIRES: the stream is not capturing.
void enqueue_marker(StreamState* stream);
// The value the GPU last wrote behind a stream's work.
std::uint32_t marker_word(int stream_index);
void* marker_memory();
std::size_t marker_bytes();

inline constexpr int kSessions = 16;
Session* session_at(int index);  // null past the last
inline constexpr int kStreams = 1024;

}  // namespace sluice::shim
