// Loops over the threads of the device that runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cpu/thread_pool.h"

namespace sluice::engine::cpu {

// f(task, thread) for 0 <= task < tasks; thread < threads, which is at most what the device has. Returns when all are
// done.
template <class F>
void parallel_for(int threads, std::int64_t tasks, F&& f) {
  ThreadPool* pool = ThreadPool::current();
  if (threads <= 1 || tasks <= 1 || pool == nullptr) {
    for (std::int64_t i = 0; i < tasks; ++i) {
      f(i, 0);
    }
    return;
  }
  using Plain = std::remove_reference_t<F>;
  pool->run(
      tasks, [](void* context, std::int64_t task, int thread) { (*static_cast<Plain*>(context))(task, thread); },
      const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

// Likewise f(first, last) over [0, count) in pieces of at least `grain`.
template <class F>
void parallel_ranges(int threads, std::int64_t count, std::int64_t grain, F&& f) {
  const std::int64_t most = threads <= 1 ? 1 : 4 * threads;
  const std::int64_t pieces = std::min<std::int64_t>(most, count / std::max<std::int64_t>(grain, 1));
  if (pieces <= 1) {
    if (count > 0) {
      f(std::int64_t{0}, count);
    }
    return;
  }
  parallel_for(threads, pieces, [&](std::int64_t i, int) { f(count * i / pieces, count * (i + 1) / pieces); });
}

}  // namespace sluice::engine::cpu
