// The emulated driver inside one process: contexts, streams, events, modules, memory. Guarded by one mutex,
// State::mutex; what a kernel computes runs outside it, on its context's executor thread.
//
// Nothing here is destroyed at exit: executor threads run on while the process's destructors do.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels.h"
#include "machine.h"
#include "profile.h"
#include "ptx.h"

namespace sluice::emulator {

struct Context;
struct Stream;
struct Module;
struct Node;  // graph.h, as the next three
struct Graph;
struct Exec;
struct Capture;

struct Event {
  Context* context = nullptr;  // where it was created or opened
  unsigned flags = 0;
  std::uint64_t recorded = 0;  // number of the latest record
  std::uint64_t done = 0;      // of the latest one that completed
  std::uint64_t done_ns = 0;
  IpcEvent* ipc = nullptr;  // then the three above are in there
  std::uint32_t ipc_generation = 0;
  bool imported = false;             // it is another process's record
  std::shared_ptr<Capture> capture;  // its latest record was captured there,
  std::vector<Node*> tips;           // behind these
};

struct Function {
  Module* module = nullptr;
  std::string name;
  const Kernel* kernel = nullptr;
  std::vector<PtxParam> params;
  std::vector<std::size_t> offsets;
  std::size_t param_bytes = 0;
  int max_dynamic_shared = 48 * 1024;
};

struct Module {
  Context* context = nullptr;  // null: a library, good for every context
  std::map<std::string, PtxEntry, std::less<>> entries;
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
};

struct Shape {
  unsigned grid[3], block[3], shared;
};

struct KernelWork {
  const Function* function = nullptr;  // what a graph's node answers; may be unloaded by then, so not followed
  Shape shape = {};
  const Kernel* kernel = nullptr;
  std::vector<unsigned char> params;
  std::vector<std::size_t> offsets;
};

// Rows of bytes from one place to another; a plain copy is one row.
struct CopyWork {
  unsigned char* to = nullptr;
  const unsigned char* from = nullptr;
  std::size_t width = 0, height = 1, depth = 1;
  std::size_t to_pitch = 0, from_pitch = 0, to_slice = 0, from_slice = 0;
  Direction direction = Direction::kDtoD;
  std::vector<unsigned char> staged;  // the source, where the caller may reuse its memory at once
};

struct FillWork {
  unsigned char* to = nullptr;
  std::size_t count = 0, height = 1, pitch = 0;  // elements a row, rows, bytes between rows
  unsigned value = 0;
  unsigned element = 1;  // bytes: 1, 2, 4
};

struct Op {
  enum class Kind { kKernel, kFill, kCopy, kWaitValue, kWriteValue, kRecord, kWaitEvent, kHost, kFree };
  Kind kind = Kind::kRecord;
  std::uint64_t id = 0;          // grows in submission order, through all streams of the context
  std::uint64_t arrival_ns = 0;  // submitted; it cannot start earlier
  std::uint64_t cost_ns = 0;     // real ns on the SMs or a copy engine
  std::uint64_t work_ns = 0;     // of kernels and memsets: the same without the floor that a launch has
  KernelWork kernel;
  CopyWork copy;
  FillWork fill;
  // Stream memory operations.
  void* word = nullptr;
  bool wide = false;  // 64 bits
  std::uint64_t value = 0;
  unsigned compare = 0;  // CUstreamWaitValue_flags
  // Events: the record's number to set or to wait for.
  std::shared_ptr<Event> event;
  std::uint64_t number = 0;
  // Host functions.
  void (*host)(void*) = nullptr;
  CUstreamCallback callback = nullptr;
  void* user = nullptr;
  // Memory to give back.
  std::uint64_t address = 0;

  // Executor's: how far it is.
  enum class State { kQueued, kRunning, kParked, kFinished } state = State::kQueued;
  std::uint64_t end_ns = 0;     // kRunning copies: when the engine is done
  std::uint64_t parked_ns = 0;  // since when it is parked
  std::uint64_t next_poll_ns = 0;
};

struct Stream {
  Context* context = nullptr;
  CUstream handle = nullptr;
  unsigned flags = 0;
  int priority = 0;  // lower is more important, as CUDA has it
  bool legacy = false;
  bool destroyed = false;  // goes when its work is done
  std::uint64_t unique_id = 0;
  std::deque<std::unique_ptr<Op>> ops;
  std::uint64_t clock_ns = 0;                   // when its last completed operation ended
  std::uint64_t submitted = 0;                  // id of the latest operation submitted
  std::uint64_t completed = 0;                  // id of the latest one completed
  std::uint64_t notify_at = ~std::uint64_t{0};  // the lowest id that a thread waits for
  int waiters = 0;                              // threads that look at it while they wait
  std::shared_ptr<Capture> capture;             // then work goes there,
  std::vector<Node*> tips;                      // behind these
  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Context {
  int device = 0;  // physical index
  unsigned flags = 0;
  bool primary = false;
  std::uint64_t unique_id = 0;
  Slot* slot = nullptr;
  int slot_index = -1;
  std::unique_ptr<Engine> engine;
  std::uint64_t engine_clock_ns = 0;  // when the SMs are free for its next kernel
  std::uint64_t next_op = 1;
  std::vector<std::unique_ptr<Stream>> streams;  // the first is the legacy default stream
  std::unordered_map<pid_t, Stream*> per_thread;
  CUresult error = CUDA_SUCCESS;  // sticky: an access outside of allocated memory
  std::map<CUlimit, std::size_t> limits;
  // Executor's.
  std::thread executor, host_thread;
  bool stop = false;
  Stream* on_engine = nullptr;  // whose head is on the SMs
  std::uint64_t run_start_ns = 0, run_end_ns = 0;
  std::condition_variable done;  // an operation that somebody waits for completed, or a queue has room again
  int room_waiters = 0;
  std::condition_variable host_wake;  // host_queue has work, or stop
  std::deque<std::pair<Stream*, Op*>> host_queue;
};

// Memory that is taken for stream-ordered allocations, in chunks, and kept up to the release threshold.
struct Pool {
  int device = 0;  // physical index
  bool is_default = false;
  bool destroyed = false;  // goes with its last allocation
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  std::uint64_t threshold = 0, largest = 0;                 // largest 0: none
  std::vector<std::pair<Context*, std::uint64_t>> charged;  // whose slots the reserved memory is counted in
  int reuse[3] = {1, 1, 1};                                 // the CU_MEMPOOL_ATTR_REUSE_* switches
};

// Memory made by cuMemCreate; goes when neither a handle nor a mapping refers to it.
struct Block {
  CUmemAllocationProp properties = {};
  std::size_t bytes = 0;
  int fd = -1;                 // its contents, so that it can be mapped in several places
  Context* context = nullptr;  // whose slot it is counted in; null once that is gone
  int handles = 0, mappings = 0;
};

struct Allocation {
  std::size_t bytes = 0;
  Context* context = nullptr;
  bool managed = false;
  Pool* pool = nullptr;    // it is part of that pool
  Block* block = nullptr;  // it is a mapping of that memory
  bool accessible = true;  // of mappings: cuMemSetAccess was called
};

struct Array {
  std::uint64_t address = 0;  // of its elements, level after level
  CUDA_ARRAY3D_DESCRIPTOR description = {};
  unsigned levels = 0;  // 0: no mipmapped array
  bool part = false;    // a level of a mipmapped array
};
struct HostRange {
  std::size_t bytes = 0;
  unsigned flags = 0;
  Context* context = nullptr;
  bool owned = false;  // allocated by us, else registered
};

struct State {
  std::mutex mutex;
  const Settings* settings = nullptr;
  Machine* machine = nullptr;
  std::vector<int> devices;  // CUdevice -> physical index, after CUDA_VISIBLE_DEVICES
  std::uint64_t next_id = 1;
  std::unordered_map<Context*, std::unique_ptr<Context>> contexts;
  struct Primary {
    Context* context = nullptr;
    int users = 0;
    unsigned flags = 0;
  } primaries[kMaxDevices];
  std::unordered_map<CUstream, Stream*> streams;
  std::unordered_map<CUevent, std::shared_ptr<Event>> events;
  std::unordered_map<Module*, std::unique_ptr<Module>> modules;
  std::unordered_set<const Function*> functions;
  std::map<std::uint64_t, Allocation> device_memory;  // by address
  std::map<std::uint64_t, HostRange> host_memory;     // by address
  std::map<std::uint64_t, std::size_t> reserved;      // addresses of cuMemAddressReserve
  std::unordered_map<CUmemoryPool, std::unique_ptr<Pool>> pools;
  CUmemoryPool default_pools[kMaxDevices] = {}, current_pools[kMaxDevices] = {};  // by physical index
  std::unordered_map<CUmemGenericAllocationHandle, std::unique_ptr<Block>> blocks;
  std::unordered_map<CUarray, std::unique_ptr<Array>> arrays;  // mipmapped ones too
  std::unordered_map<Graph*, std::unique_ptr<Graph>> graphs;   // the program's; those inside of nodes are not here
  std::unordered_map<Exec*, std::unique_ptr<Exec>> execs;
  std::vector<std::shared_ptr<Capture>> captures;  // that have not ended
  std::condition_variable event_done;              // an event completed while event_waiters was not 0
  int event_waiters = 0;
};

// The process's one state. Never destroyed.
State& state();

// ---- how an API function begins -------------------------------------------------------------------------------

// CUDA_SUCCESS once cuInit has succeeded in this very process; a forked child never gets it, as on the driver.
CUresult ready();
bool forked();

// Holds State::mutex and the calling thread's current context, or says why not. A context is not required when
// `needs_context` is false.
struct Call {
  // `unsafe`: the call is one that a capture in progress may forbid.
  explicit Call(bool needs_context = true, bool unsafe = false);
  std::unique_lock<std::mutex> lock;
  CUresult error = CUDA_SUCCESS;
  Context* context = nullptr;
};

// The calling thread's stack of contexts. REQUIRES: State::mutex.
Context* current_context();
CUresult push_context(Context* context);
Context* pop_context();
void set_context(Context* context);

// ---- contexts and streams (REQUIRE State::mutex) --------------------------------------------------------------

CUresult create_context(int device, unsigned flags, bool primary, Context** out);
// Waits for its work first; `lock` is State::mutex.
void destroy_context(Context* context, std::unique_lock<std::mutex>& lock);
Stream* add_stream(Context* context, unsigned flags, int priority);

// The stream behind a handle, the default ones included; null if there is none. For `per_thread`, a null handle is
// the calling thread's default stream.
Stream* find_stream(Context* context, CUstream handle, bool per_thread = false);

// ---- work -----------------------------------------------------------------------------------------------------

// Puts `op` behind the stream's work. Blocks while the stream's queue is full, as the driver does. Returns its id.
std::uint64_t submit(Stream* stream, std::unique_ptr<Op> op, std::unique_lock<std::mutex>& lock);
// Its two halves. push() never blocks.
void await_room(Stream* stream, std::unique_lock<std::mutex>& lock);
std::uint64_t push(Stream* stream, std::unique_ptr<Op> op);
// Blocks until the operation `id` of the stream has completed.
void wait_done(Stream* stream, std::uint64_t id, std::unique_lock<std::mutex>& lock);
// Blocks until everything submitted to the context so far has completed.
void wait_idle(Context* context, std::unique_lock<std::mutex>& lock);
// The context's two threads.
void run_executor(Context* context);
void run_host_functions(Context* context);

// ---- events (REQUIRE State::mutex) ----------------------------------------------------------------------------

std::uint64_t event_recorded(const Event& event);
// Whether record `number` is complete; an interprocess event whose recorder is dead counts as complete.
bool event_done(const Event& event, std::uint64_t number);

// ---- memory (REQUIRE State::mutex) ----------------------------------------------------------------------------

const Allocation* find_allocation(std::uint64_t address, std::size_t bytes, std::uint64_t* base = nullptr);
const HostRange* find_host_range(std::uint64_t address, std::size_t bytes, std::uint64_t* base = nullptr);
CUresult allocate(Context* context, std::size_t bytes, bool managed, std::uint64_t* address, Pool* pool = nullptr);
// REQUIRES: no work uses it any more.
void free_allocation(std::uint64_t address);
// The same for all that belongs to a context which ends (api_pool.cc, api_virtual.cc).
void forget_pool_charges(Context* context);
void forget_block_charges(Context* context);

// Takes `bytes` from the pool, which grows by whole chunks if the card has them.
CUresult take_from_pool(Pool* pool, Context* context, std::size_t bytes);
void return_to_pool(Pool* pool, std::size_t bytes);

}  // namespace sluice::emulator

// Every function of the API is exported by its ELF name.
#define EMU_API extern "C" __attribute__((visibility("default")))
