// A context's executor: carries out the streams' operations in their order, in the card's time.
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include "sluice/base/clock.h"
#include "state.h"

namespace sluice::emulator {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kBeatNs = 5'000'000;  // how often it shows that it is alive while it has or wants the SMs

// Parked operations are looked at again after an eighth of the time they are parked, within these (emulated) bounds.
constexpr double kPollFirstNs = 20'000, kPollLastNs = 200'000;

class Executor {
 public:
  explicit Executor(Context* context)
      : c_(*context), s_(*state().settings), device_(state().machine->devices[context->device]) {}

  void run() {
    std::unique_lock<std::mutex> lock(state().mutex);
    while (!c_.stop) {
      const std::uint32_t seen = c_.slot->kick.load();
      const std::uint64_t now = now_ns();
      c_.slot->beat_ns.store(now);
      wake_ns_ = kNever;
      if (step(now, lock)) continue;
      if (c_.engine->held() || c_.engine->wanting()) wake_ns_ = std::min(wake_ns_, now + kBeatNs);
      // A bound even with nothing to do, since a kick from a process that dies in between may be lost.
      wake_ns_ = std::min(wake_ns_, now + kNanosPerSecond);
      lock.unlock();
      wait_for_kick(*c_.slot, seen, wake_ns_);
      lock.lock();
    }
    c_.engine->release(now_ns());
  }

 private:
  // Does what is due. Returns true if something moved, so that more may be due.
  bool step(std::uint64_t now, std::unique_lock<std::mutex>& lock) {
    bool moved = false;
    for (std::size_t i = 0; i < c_.streams.size(); ++i) {
      Stream* stream = c_.streams[i].get();
      while (!stream->ops.empty() && advance(stream, *stream->ops.front(), now, lock)) moved = true;
    }
    drop_destroyed();
    if (c_.on_engine != nullptr) return finish_engine_op(now) || moved;
    Stream* next = pick_runnable(now);
    if (next != nullptr) return start_engine_op(next, now, lock) || moved;
    if (!moved && c_.engine->involved()) c_.engine->release(c_.engine_clock_ns);
    return moved;
  }

  // The default stream's implicit order: against every blocking stream of the context, by submission.
  bool ordered_before(const Stream* stream, const Op& op) const {
    const Stream* legacy = c_.streams.front().get();
    if (stream->legacy) {
      return std::none_of(c_.streams.begin(), c_.streams.end(), [&](const auto& other) {
        return other->blocking() && !other->ops.empty() && other->ops.front()->id < op.id;
      });
    }
    return !stream->blocking() || legacy->ops.empty() || legacy->ops.front()->id > op.id;
  }

  // When the operation could start at the earliest, given that it may start now.
  std::uint64_t start_of(const Stream* stream, const Op& op) const {
    std::uint64_t at = std::max(op.arrival_ns, stream->clock_ns);
    if (stream->legacy) {
      for (const auto& other : c_.streams) {
        if (other->blocking()) at = std::max(at, other->clock_ns);
      }
    } else if (stream->blocking()) {
      at = std::max(at, c_.streams.front()->clock_ns);
    }
    return at;
  }

  // Moves the head of a stream on, as far as it needs no SMs. Returns true if it completed (and is gone).
  bool advance(Stream* stream, Op& op, std::uint64_t now, std::unique_lock<std::mutex>& lock) {
    if (op.state == Op::State::kQueued && !ordered_before(stream, op)) return false;
    switch (op.kind) {
      case Op::Kind::kKernel:
      case Op::Kind::kFill:
        return false;
      case Op::Kind::kCopy:
        return advance_copy(stream, op, now, lock);
      case Op::Kind::kWriteValue: {
        if (op.wide) {
          std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(op.word)).store(op.value);
        } else {
          std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(op.word))
              .store(static_cast<std::uint32_t>(op.value));
        }
        complete(stream, start_of(stream, op));
        return true;
      }
      case Op::Kind::kWaitValue:
        // An open gate takes its time on the SMs' front end, with the kernels: see pick_runnable.
        if (op.state != Op::State::kRunning && !holds(op))
          park(op, now);
        else if (op.state == Op::State::kParked)
          open_parked(stream, op, now);
        return false;
      case Op::Kind::kRecord:
        record(op, start_of(stream, op));
        complete(stream, start_of(stream, op));
        return true;
      case Op::Kind::kWaitEvent:
        if (!event_done(*op.event, op.number)) {
          // An event of this process kicks this executor when it is done.
          if (op.event->ipc != nullptr) park(op, now);
          return false;
        }
        complete(stream, std::max(start_of(stream, op), event_end(op, now)));
        return true;
      case Op::Kind::kHost:
        if (op.state == Op::State::kQueued) {
          op.state = Op::State::kRunning;
          c_.host_queue.emplace_back(stream, &op);
          c_.host_wake.notify_one();
        }
        if (op.state != Op::State::kFinished) return false;
        complete(stream, now);
        return true;
      case Op::Kind::kFree:
        free_allocation(op.address);
        complete(stream, start_of(stream, op));
        return true;
    }
    return false;
  }

  std::uint64_t event_end(const Op& op, std::uint64_t now) const {
    const std::uint64_t at = op.event->ipc != nullptr ? op.event->ipc->done_ns.load() : op.event->done_ns;
    return std::min(at, now);
  }

  bool advance_copy(Stream* stream, Op& op, std::uint64_t now, std::unique_lock<std::mutex>& lock) {
    if (op.state == Op::State::kQueued) {
      op.end_ns = reserve_copy(device_, op.copy.direction, start_of(stream, op), op.cost_ns);
      op.state = Op::State::kRunning;
    }
    if (now < op.end_ns) {
      wake_ns_ = std::min(wake_ns_, op.end_ns);
      return false;
    }
    lock.unlock();
    const CopyWork& copy = op.copy;
    for (std::size_t z = 0; z < copy.depth; ++z) {
      for (std::size_t y = 0; y < copy.height; ++y) {
        std::memmove(copy.to + z * copy.to_slice + y * copy.to_pitch,
                     copy.from + z * copy.from_slice + y * copy.from_pitch, copy.width);
      }
    }
    lock.lock();
    complete(stream, op.end_ns);
    return true;
  }

  static bool holds(const Op& op) {
    std::uint64_t word;
    if (op.wide) {
      word = std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(op.word)).load();
    } else {
      word = std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(op.word)).load();
    }
    const std::uint64_t mask = op.wide ? kNever : 0xffffffffu;
    const std::uint64_t value = op.value & mask;
    switch (op.compare & 3u) {
      case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic, as the driver documents it
        return op.wide ? static_cast<std::int64_t>(word - value) >= 0
                       : static_cast<std::int32_t>(static_cast<std::uint32_t>(word - value)) >= 0;
      case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
      case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
      default:
        return (~(word | value) & mask) != 0;  // NOR
    }
  }

  void park(Op& op, std::uint64_t now) {
    if (op.state != Op::State::kParked) {
      op.state = Op::State::kParked;
      op.parked_ns = now;
      op.next_poll_ns = 0;
    }
    if (now >= op.next_poll_ns) {
      const std::uint64_t pause = std::clamp((now - op.parked_ns) / 8, s_.real(kPollFirstNs), s_.real(kPollLastNs));
      op.next_poll_ns = now + pause;
    }
    wake_ns_ = std::min(wake_ns_, op.next_poll_ns);
  }

  // The word of a parked wait has changed: the stream goes on after the latency of the hardware, of which polling has
  // taken half a period on average already.
  void open_parked(Stream* stream, Op& op, std::uint64_t now) {
    const std::uint64_t polled = std::min(now - op.parked_ns, s_.real(kPollFirstNs)) / 2;
    const std::uint64_t latency = s_.real(static_cast<double>(s_.profile.gate_open_ns));
    stream->clock_ns = std::max(stream->clock_ns, now + latency - std::min(latency, polled));
    op.state = Op::State::kQueued;  // looked at once more when the SMs are free, as the hardware does
  }

  static void record(Op& op, std::uint64_t at) {
    Event& event = *op.event;
    if (event.ipc != nullptr) {
      event.ipc->done_ns.store(at);
      std::uint64_t old = event.ipc->done.load();
      while (old < op.number && !event.ipc->done.compare_exchange_weak(old, op.number)) {
      }
      return;
    }
    event.done = std::max(event.done, op.number);
    event.done_ns = at;
    if (state().event_waiters > 0) state().event_done.notify_all();
    // Streams of other contexts may wait for it.
    if (state().contexts.size() > 1) {
      for (auto& [key, other] : state().contexts) kick(*other->slot);
    }
  }

  // The stream whose head may go to the SMs now: the most important stream first, then the earliest submitted.
  Stream* pick_runnable(std::uint64_t now) {
    Stream* best = nullptr;
    for (const auto& stream : c_.streams) {
      if (stream->ops.empty()) continue;
      Op& op = *stream->ops.front();
      if (op.kind == Op::Kind::kWaitValue) {
        if (op.state == Op::State::kParked || (op.state == Op::State::kQueued && !ordered_before(stream.get(), op))) {
          continue;
        }
      } else if ((op.kind != Op::Kind::kKernel && op.kind != Op::Kind::kFill) || !ordered_before(stream.get(), op)) {
        continue;
      }
      if (const std::uint64_t at = start_of(stream.get(), op); at > now) {
        wake_ns_ = std::min(wake_ns_, at);
        continue;
      }
      if (best == nullptr || stream->priority < best->priority ||
          (stream->priority == best->priority && op.id < best->ops.front()->id)) {
        best = stream.get();
      }
    }
    return best;
  }

  bool start_engine_op(Stream* stream, std::uint64_t now, std::unique_lock<std::mutex>& lock) {
    Op& op = *stream->ops.front();
    const std::uint64_t since = start_of(stream, op);
    if (!c_.engine->held()) {
      if (!c_.engine->acquire(since, now)) {
        wake_ns_ = std::min(wake_ns_, c_.engine->next_look_ns());
        return false;
      }
      c_.engine_clock_ns = std::max(c_.engine_clock_ns, c_.engine->ready_ns());
    }
    c_.on_engine = stream;
    c_.run_start_ns = std::max(since, c_.engine_clock_ns);
    c_.run_end_ns = c_.run_start_ns + op.cost_ns;
    if (op.state == Op::State::kQueued) {
      op.state = Op::State::kRunning;
      if (op.kind != Op::Kind::kWaitValue) compute(op, lock);
    }
    return true;
  }

  void compute(Op& op, std::unique_lock<std::mutex>& lock) {
    if (op.kind == Op::Kind::kFill) {
      const FillWork& fill = op.fill;
      lock.unlock();
      for (std::size_t y = 0; y < fill.height; ++y) {
        unsigned char* row = fill.to + y * fill.pitch;
        if (fill.element == 1) std::memset(row, static_cast<int>(fill.value), fill.count);
        if (fill.element == 2) std::fill_n(reinterpret_cast<std::uint16_t*>(row), fill.count, fill.value);
        if (fill.element == 4) std::fill_n(reinterpret_cast<std::uint32_t*>(row), fill.count, fill.value);
      }
      lock.lock();
      return;
    }
    auto resolve = [](void*, std::uint64_t address, std::size_t bytes) -> void* {
      std::lock_guard<std::mutex> look(state().mutex);
      const bool known = find_allocation(address, bytes) != nullptr || find_host_range(address, bytes) != nullptr;
      return known ? reinterpret_cast<void*>(address) : nullptr;
    };
    const KernelCall call(op.kernel.params, op.kernel.offsets, resolve, nullptr);
    const Kernel* kernel = op.kernel.kernel;
    lock.unlock();
    const bool fine = kernel->run(call);
    lock.lock();
    if (!fine && c_.error == CUDA_SUCCESS) {
      say("kernel %s accessed memory that is not allocated", std::string(kernel->name).c_str());
      c_.error = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
  }

  // The operation on the SMs: completed, or preempted and to be resumed, or not yet due.
  bool finish_engine_op(std::uint64_t now) {
    if (now < c_.run_end_ns) {
      wake_ns_ = std::min(wake_ns_, c_.run_end_ns);
      return false;
    }
    Stream* stream = c_.on_engine;
    Op& op = *stream->ops.front();
    std::uint64_t lost = 0;
    c_.on_engine = nullptr;
    if (c_.engine->kept_until(c_.run_end_ns, &lost)) {
      add_busy(device_, c_.run_end_ns, c_.run_end_ns - c_.run_start_ns);
      c_.engine_clock_ns = c_.run_end_ns;
      complete(stream, c_.run_end_ns);
      return true;
    }
    if (lost > c_.run_start_ns) {
      add_busy(device_, lost, lost - c_.run_start_ns);
      op.cost_ns = c_.run_end_ns - lost;
    }
    c_.engine_clock_ns = std::max(lost, c_.run_start_ns);
    return true;
  }

  void complete(Stream* stream, std::uint64_t at) {
    stream->clock_ns = std::max(stream->clock_ns, at);
    stream->completed = stream->ops.front()->id;
    stream->ops.pop_front();
    const bool awaited = stream->completed >= stream->notify_at;
    if (awaited) stream->notify_at = kNever;
    if (awaited || c_.room_waiters > 0) c_.done.notify_all();
  }

  void drop_destroyed() {
    std::erase_if(c_.streams, [&](const std::unique_ptr<Stream>& stream) {
      return stream->destroyed && stream->ops.empty() && stream->waiters == 0;
    });
  }

  Context& c_;
  const Settings& s_;
  Device& device_;
  std::uint64_t wake_ns_ = kNever;
};

void prepare_thread(const char* name) {
  pthread_setname_np(pthread_self(), name);
  // The default slack of 50 us would be as long as a kernel.
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

}  // namespace

void run_executor(Context* context) {
  prepare_thread("sluice-emu-gpu");
  Executor(context).run();
}

void run_host_functions(Context* context) {
  prepare_thread("sluice-emu-host");
  std::unique_lock<std::mutex> lock(state().mutex);
  for (;;) {
    context->host_wake.wait(lock, [&] { return context->stop || !context->host_queue.empty(); });
    if (context->host_queue.empty()) return;
    auto [stream, op] = context->host_queue.front();
    context->host_queue.pop_front();
    const CUstream handle = stream->handle;
    lock.unlock();
    if (op->callback != nullptr) {
      op->callback(handle, CUDA_SUCCESS, op->user);
    } else {
      op->host(op->user);
    }
    lock.lock();
    op->state = Op::State::kFinished;
    kick(*context->slot);
  }
}

}  // namespace sluice::emulator
