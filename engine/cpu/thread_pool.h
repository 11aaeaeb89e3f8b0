// The threads of a device. A loop's caller takes part in it and waits for nobody who has not begun: where another
// program has a core, the caller does the work alone instead of meeting a thread that does not run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::engine::cpu {

class ThreadPool {
 public:
  // `threads`: the caller's included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  using Call = void (*)(void* context, std::int64_t task, int thread);
  // call(context, task, thread) for 0 <= task < tasks; 0 <= thread < threads(), no two at once with the same. Returns
  // when all are done; allocates nothing. While another caller is in, the loop runs on the calling thread alone.
  void run(std::int64_t tasks, Call call, void* context);

  // The pool that parallel_for() takes on this thread; nullptr: none.
  static ThreadPool* current();

  // Makes a pool current while it lives, and lets its threads wait awake between loops.
  class Scope {
   public:
    explicit Scope(ThreadPool* pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ThreadPool* before_;
  };

 private:
  void work(int thread);
  void take_tasks(int thread);

  std::mutex busy_;  // held by the caller whose loop is running
  // Counts loops in the upper bits; kClosed: workers may not enter; below: how many are inside. Only who is inside
  // reads the loop's fields, and they change only while nobody is.
  std::atomic<std::uint32_t> state_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> next_{0};
  std::int64_t tasks_ = 0;
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> workers_;
  std::atomic<int> runs_{0};  // scopes that are open: more loops will come soon
};

}  // namespace sluice::engine::cpu
