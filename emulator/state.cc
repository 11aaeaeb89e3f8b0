#include "state.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "graph.h"
#include "sluice/base/clock.h"

namespace sluice::emulator {
namespace {

// As many operations as a stream takes before submitting blocks; the driver's own queues take about as many.
constexpr std::size_t kQueueLimit = 1024;
constexpr int kStackDepth = 64;

// Plain data without a destructor: used until the very end of a thread.
thread_local Context* context_stack[kStackDepth];
thread_local int context_depth = 0;

// Starts a thread that takes no signal of the program's.
template <class F>
std::thread quiet_thread(F function, Context* context) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(function, context);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

template <class Map>
auto find_range(Map& map, std::uint64_t address, std::size_t bytes, std::uint64_t* base)
    -> decltype(&map.begin()->second) {
  auto at = map.upper_bound(address);
  if (at == map.begin()) return nullptr;
  --at;
  const std::uint64_t offset = address - at->first;
  // An empty range needs a start inside; the end of one allocation is not the next one.
  if (offset >= at->second.bytes || bytes > at->second.bytes - offset) return nullptr;
  if (base != nullptr) *base = at->first;
  return &at->second;
}

}  // namespace

State& state() {
  static State* const once = new State;
  return *once;
}

Call::Call(bool needs_context, bool unsafe) {
  error = ready();
  if (error != CUDA_SUCCESS) return;
  lock = std::unique_lock<std::mutex>(state().mutex);
  context = current_context();
  if (needs_context) error = context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : context->error;
  if (error == CUDA_SUCCESS && unsafe) error = forbid_unsafe();
}

Context* current_context() {
  if (context_depth == 0) return nullptr;
  Context* context = context_stack[context_depth - 1];
  // It may have been destroyed by another thread.
  return state().contexts.count(context) != 0 ? context : nullptr;
}

CUresult push_context(Context* context) {
  if (context_depth == kStackDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  context_stack[context_depth++] = context;
  return CUDA_SUCCESS;
}

Context* pop_context() { return context_depth == 0 ? nullptr : context_stack[--context_depth]; }

void set_context(Context* context) {
  if (context_depth > 0) --context_depth;
  if (context != nullptr) context_stack[context_depth++] = context;
}

CUresult create_context(int device, unsigned flags, bool primary, Context** out) {
  State& s = state();
  Device& card = s.machine->devices[device];
  const int slot = claim_slot(card);
  if (slot < 0) {
    say("all %d contexts of card %d are in use", kSlots, device);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto owned = std::make_unique<Context>();
  Context* context = owned.get();
  context->device = device;
  context->flags = flags;
  context->primary = primary;
  context->unique_id = s.next_id++;
  context->slot = &card.slots[slot];
  context->slot_index = slot;
  const Profile& p = s.settings->profile;
  context->engine = std::make_unique<Engine>(card, slot, s.settings->real(static_cast<double>(p.time_slice_ns)),
                                             s.settings->real(static_cast<double>(p.context_switch_ns)));
  Stream* legacy = add_stream(context, 0, 0);
  legacy->legacy = true;
  s.contexts.emplace(context, std::move(owned));
  context->executor = quiet_thread(run_executor, context);
  context->host_thread = quiet_thread(run_host_functions, context);
  *out = context;
  return CUDA_SUCCESS;
}

void destroy_context(Context* context, std::unique_lock<std::mutex>& lock) {
  State& s = state();
  wait_idle(context, lock);
  auto at = s.contexts.find(context);
  if (at == s.contexts.end()) return;  // another thread was faster
  std::unique_ptr<Context> owned = std::move(at->second);
  s.contexts.erase(at);
  owned->stop = true;
  owned->host_wake.notify_all();
  kick(*owned->slot);
  for (const auto& stream : owned->streams) {
    leave_capture(stream.get());
    s.streams.erase(stream->handle);
  }
  forget_lanes(context);
  std::erase_if(s.events, [&](const auto& event) { return event.second->context == context; });
  std::erase_if(s.modules, [&](const auto& module) {
    if (module.second->context != context) return false;
    for (const auto& [name, function] : module.second->functions) s.functions.erase(function.get());
    return true;
  });
  for (auto it = s.device_memory.begin(); it != s.device_memory.end();) {
    auto& [address, allocation] = *it++;
    if (allocation.context != context) continue;
    if (allocation.block != nullptr) {
      allocation.context = nullptr;  // mappings outlive contexts
    } else {
      free_allocation(address);
    }
  }
  std::erase_if(s.host_memory, [&](const auto& range) {
    if (range.second.context != context) return false;
    if (range.second.owned) munmap(reinterpret_cast<void*>(range.first), range.second.bytes);
    return true;
  });
  forget_pool_charges(context);
  forget_block_charges(context);
  lock.unlock();
  owned->executor.join();
  // A host function may be what destroys its context's last user; it cannot wait for itself.
  if (owned->host_thread.get_id() == std::this_thread::get_id()) {
    owned->host_thread.detach();
    (void)owned.release();
  } else {
    owned->host_thread.join();
  }
  lock.lock();
  release_slot(s.machine->devices[context->device], context->slot_index);
}

Stream* add_stream(Context* context, unsigned flags, int priority) {
  auto owned = std::make_unique<Stream>();
  Stream* stream = owned.get();
  stream->context = context;
  stream->handle = reinterpret_cast<CUstream>(stream);
  stream->flags = flags;
  stream->priority = priority;
  stream->unique_id = state().next_id++;
  context->streams.push_back(std::move(owned));
  return stream;
}

Stream* find_stream(Context* context, CUstream handle, bool per_thread) {
  if (handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread)) {
    Stream*& stream = context->per_thread[static_cast<pid_t>(syscall(SYS_gettid))];
    if (stream == nullptr) {
      stream = add_stream(context, 0, 0);
      stream->handle = CU_STREAM_PER_THREAD;
    }
    return stream;
  }
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context->streams.front().get();
  auto at = state().streams.find(handle);
  return at == state().streams.end() ? nullptr : at->second;
}

void await_room(Stream* stream, std::unique_lock<std::mutex>& lock) {
  Context* context = stream->context;
  if (stream->ops.size() < kQueueLimit) return;
  ++stream->waiters;
  ++context->room_waiters;
  context->done.wait(lock, [&] { return stream->ops.size() < kQueueLimit; });
  --context->room_waiters;
  --stream->waiters;
}

std::uint64_t submit(Stream* stream, std::unique_ptr<Op> op, std::unique_lock<std::mutex>& lock) {
  await_room(stream, lock);
  return push(stream, std::move(op));
}

std::uint64_t push(Stream* stream, std::unique_ptr<Op> op) {
  Context* context = stream->context;
  op->id = context->next_op++;
  op->arrival_ns = now_ns();
  stream->submitted = op->id;
  const std::uint64_t id = op->id;
  // Behind other work of its stream there is nothing for the executor to look at yet.
  const bool first = stream->ops.empty();
  stream->ops.push_back(std::move(op));
  if (first) kick(*context->slot);
  return id;
}

void wait_done(Stream* stream, std::uint64_t id, std::unique_lock<std::mutex>& lock) {
  Context* context = stream->context;
  ++stream->waiters;
  while (stream->completed < id) {
    stream->notify_at = std::min(stream->notify_at, id);
    context->done.wait(lock);
  }
  --stream->waiters;
  if (stream->destroyed) kick(*context->slot);
}

void wait_idle(Context* context, std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<Stream*, std::uint64_t>> targets;
  for (const auto& stream : context->streams) {
    if (stream->completed < stream->submitted) {
      ++stream->waiters;  // keeps it, should it be destroyed meanwhile
      targets.emplace_back(stream.get(), stream->submitted);
    }
  }
  for (auto [stream, id] : targets) {
    wait_done(stream, id, lock);
    --stream->waiters;
    if (stream->destroyed) kick(*context->slot);
  }
}

std::uint64_t event_recorded(const Event& event) {
  return event.ipc != nullptr ? event.ipc->recorded.load() : event.recorded;
}

bool event_done(const Event& event, std::uint64_t number) {
  if (event.ipc == nullptr) return event.done >= number;
  return event.ipc->done.load() >= number || event.ipc->generation.load() != event.ipc_generation ||
         !is_alive(event.ipc->recorder.load());
}

const Allocation* find_allocation(std::uint64_t address, std::size_t bytes, std::uint64_t* base) {
  std::uint64_t start = 0;
  const Allocation* found = find_range(state().device_memory, address, 0, &start);
  if (found == nullptr || !found->accessible) return nullptr;
  if (base != nullptr) *base = start;
  // Mappings side by side are one stretch of memory.
  for (const Allocation* part = found; bytes > start + part->bytes - address;) {
    const std::uint64_t end = start + part->bytes;
    const Allocation* next = find_range(state().device_memory, end, 0, &start);
    if (part->block == nullptr || next == nullptr || next->block == nullptr || !next->accessible || start != end)
      return nullptr;
    part = next;
  }
  return found;
}

const HostRange* find_host_range(std::uint64_t address, std::size_t bytes, std::uint64_t* base) {
  return find_range(state().host_memory, address, bytes, base);
}

CUresult allocate(Context* context, std::size_t bytes, bool managed, std::uint64_t* address, Pool* pool) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Device& card = s.machine->devices[context->device];
  if (pool != nullptr) {
    if (CUresult e = take_from_pool(pool, context, bytes); e != CUDA_SUCCESS) return e;
  } else if (!charge(card, context->slot_index, bytes, s.settings->profile.memory_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Device memory is host memory that takes pages only where it is touched.
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    if (pool != nullptr) {
      return_to_pool(pool, bytes);
    } else {
      uncharge(card, context->slot_index, bytes);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<std::uint64_t>(at);
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.context = context;
  allocation.managed = managed;
  allocation.pool = pool;
  s.device_memory[*address] = allocation;
  return CUDA_SUCCESS;
}

void free_allocation(std::uint64_t address) {
  State& s = state();
  auto at = s.device_memory.find(address);
  if (at == s.device_memory.end()) return;
  const Allocation allocation = at->second;
  s.device_memory.erase(at);
  munmap(reinterpret_cast<void*>(address), allocation.bytes);
  if (allocation.pool != nullptr) {
    return_to_pool(allocation.pool, allocation.bytes);
  } else {
    uncharge(s.machine->devices[allocation.context->device], allocation.context->slot_index, allocation.bytes);
  }
}

}  // namespace sluice::emulator
