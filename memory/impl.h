// What a Pool is made of. Locks: a thread's cache before the pool's own, never two caches.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "address_map.h"
#include "backing.h"
#include "driver_calls.h"
#include "heap.h"
#include "slabs.h"
#include "sluice/memory.h"
#include "streams.h"
#include "thread_cache.h"

namespace sluice::memory {

class Pool::Impl {
 public:
  Impl(const DriverCalls& driver, CUcontext context, std::unique_ptr<Backing> backing);
  ~Impl();

  Result<CUdeviceptr> allocate(std::uint64_t bytes, CUstream stream);
  Status free(CUdeviceptr address, CUstream stream);
  Status forget(CUstream stream);
  PoolStats stats();

 private:
  using Lock = std::unique_lock<std::mutex>;
  // Tries once more, under the lock; true if it found something.
  using Attempt = std::function<bool()>;
  class DriverSection;

  ThreadCache& cache();
  ThreadCache::Stream& stream_in(ThreadCache* cache, CUstream stream);
  Result<CUdeviceptr> allocate_small(int size_class, ThreadCache* cache, CUstream stream);
  Status free_small(Slab* slab, CUdeviceptr address, CUstream stream);
  Status exhausted(std::uint64_t bytes, const char* more);

  // What is done before an allocation fails, in this order; all but the first make calls of the driver's.
  bool reclaim(int owner, std::uint64_t bytes, const Attempt& attempt, Lock* lock, const char** more);
  void empty_caches(Lock* lock);
  void collect_finished(int owner);
  bool wait_for_others(int owner, const Attempt& attempt);
  void drain(Lock* lock);
  bool gather(std::uint64_t bytes);

  // Whether anything waits for that stream; nobody and draining_ are none.
  bool has_any(const Stream& stream) const {
    return stream.owner > draining_ && (heap_.free_bytes(stream.owner) > 0 || !stream.parked.empty());
  }
  void give_parked(std::vector<std::uint64_t>* parked);
  void give_pieces(const std::uint64_t* pieces, std::size_t count);
  void note_peak();

  const DriverCalls& driver_;
  const CUcontext context_;
  const std::uint64_t number_;  // of this pool in the process

  mutable std::mutex mutex_;  // all below
  std::unique_ptr<Backing> backing_;
  Heap heap_;
  Slabs slabs_;
  AddressMap blocks_;
  Streams streams_;
  const int draining_;  // the owner of what a drain waits for
  std::vector<std::shared_ptr<ThreadCache>> caches_;
  PoolStats counts_;        // of what is not counted in the caches
  std::mutex drain_mutex_;  // one drain at a time; before mutex_
};

}  // namespace sluice::memory
