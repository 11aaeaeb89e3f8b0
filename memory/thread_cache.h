// The small blocks that one thread keeps for itself, by stream and size, so that most allocations take no shared lock.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "slabs.h"

namespace sluice::memory {

// The lock is the thread's own: others take it only to empty the cache before an allocation fails.
struct ThreadCache {
  static constexpr std::size_t kPieces = 32;  // kept of a size; half of them move at a time

  struct Magazine {
    std::size_t count = 0;
    std::array<std::uint64_t, kPieces> pieces;
  };
  struct Stream {
    CUstream stream = nullptr;
    int owner = 0;
    std::array<Magazine, kSmallSizes.size()> magazines;
  };

  std::mutex mutex;
  std::vector<std::unique_ptr<Stream>> streams;
  // Written by the thread alone, read by all.
  std::atomic<std::uint64_t> allocations{0}, frees{0};
  std::atomic<std::int64_t> used_bytes{0};  // in small blocks it allocated, less those it freed
  std::atomic<bool> orphaned{false};        // its thread has ended: the next new thread takes it over

  // Null if the thread has not used that stream yet. REQUIRES: the lock is held.
  Stream* find(CUstream stream) {
    for (const std::unique_ptr<Stream>& known : streams) {
      if (known->stream == stream) return known.get();
    }
    return nullptr;
  }
};

// This thread's cache for the pool of that number, or null. Caches are orphaned when their thread ends.
ThreadCache* cache_of_this_thread(std::uint64_t pool);
// Whether they were: what a thread still frees while it ends, or the process, must go elsewhere.
bool this_thread_ends();
void set_cache_of_this_thread(std::uint64_t pool, std::shared_ptr<ThreadCache> cache);

}  // namespace sluice::memory
