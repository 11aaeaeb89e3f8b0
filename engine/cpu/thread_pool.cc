#include "cpu/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>

namespace sluice::engine::cpu {
namespace {

constexpr std::uint32_t kInside = 0xfff;  // more workers than that no device has
constexpr std::uint32_t kClosed = 0x1000;
constexpr std::uint32_t kLoop = 0x2000;
constexpr int kSpins = 4000;  // some 50 us: longer than the pause between two runs of a loop that calls them
constexpr int kSpinsInRun =
    80000;                         // some 1 ms, while a run goes on: until an operator that one thread computes is done
constexpr int kSpinsToYield = 64;  // while a worker finishes its last task

thread_local ThreadPool* current_pool = nullptr;

}  // namespace

ThreadPool* ThreadPool::current() { return current_pool; }
ThreadPool::Scope::Scope(ThreadPool* pool) : before_(current_pool) {
  current_pool = pool;
  if (pool != nullptr) {
    pool->runs_.fetch_add(1, std::memory_order_relaxed);
  }
}
ThreadPool::Scope::~Scope() {
  if (current_pool != nullptr) {
    current_pool->runs_.fetch_sub(1, std::memory_order_relaxed);
  }
  current_pool = before_;
}

ThreadPool::ThreadPool(int threads) : state_(kClosed) {
  for (int i = 1; i < std::min<int>(threads, kInside); ++i) {
    workers_.emplace_back([this, i] { work(i); });
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  state_ += kLoop;
  state_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::take_tasks(int thread) {
  for (std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks_;
       task = next_.fetch_add(1, std::memory_order_relaxed)) {
    call_(context_, task, thread);
  }
}

void ThreadPool::run(std::int64_t tasks, Call call, void* context) {
  std::unique_lock lock(busy_, std::defer_lock);
  if (tasks < 2 || workers_.empty() || !lock.try_lock()) {
    for (std::int64_t task = 0; task < tasks; ++task) {
      call(context, task, 0);
    }
    return;
  }
  tasks_ = tasks;
  call_ = call;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  const std::uint32_t closed = state_.load(std::memory_order_relaxed);
  state_.store((closed & ~kClosed) + kLoop, std::memory_order_release);
  state_.notify_all();
  take_tasks(0);
  state_.fetch_or(kClosed, std::memory_order_relaxed);
  for (int spins = 0; (state_.load(std::memory_order_acquire) & kInside) != 0; ++spins) {
    if (spins < kSpinsToYield) {
      _mm_pause();
    } else {
      sched_yield();
    }
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = state_.load(std::memory_order_relaxed);
  while (!stop_.load(std::memory_order_relaxed)) {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    const bool is_new = (state & ~(kLoop - 1)) != (seen & ~(kLoop - 1));
    if (!is_new || (state & kClosed) != 0) {
      for (int spins = 0; spins < (runs_.load(std::memory_order_relaxed) > 0 ? kSpinsInRun : kSpins) &&
                          state == state_.load(std::memory_order_relaxed);
           ++spins) {
        _mm_pause();
      }
      state_.wait(state, std::memory_order_relaxed);
      continue;
    }
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
      continue;
    }
    seen = state;
    take_tasks(thread);
    state_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace sluice::engine::cpu
