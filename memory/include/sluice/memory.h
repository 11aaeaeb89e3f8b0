// A pool of device memory of a fixed size, taken from the driver once and divided by us.
//
// Memory is given back in the order of a stream: what was freed on a stream can be used again on that stream at once,
// since its work runs in order, and on another one when the first stream's work is done. So neither allocating nor
// freeing waits for the device, except as the last step before an allocation fails.
//
// An allocation that finds nothing tries, in this order: what threads keep for themselves, what streams have finished
// with meanwhile, a wait put into the allocating stream for another stream's work, waiting for the device, and moving
// free pieces together (virtual memory management only: the addresses change, the memory does not). While the stream is
// captured only the first of them is possible.
//
// The driver is the one that the process uses: the shim under `sluice run`, the emulator where SLUICE_DRIVER names it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>

#include "sluice/base/status.h"

namespace sluice::memory {

struct PoolOptions {
  std::uint64_t capacity_bytes = 0;  // rounded up to whole chunks
  // Whether cuIpcGetMemHandle works on its blocks, as it does not on virtual memory. Such a pool is one allocation of
  // the driver's, and cannot move free pieces together.
  bool exportable = false;
};

struct PoolStats {
  std::uint64_t reserved_bytes = 0;      // what the driver gave
  std::uint64_t active_bytes = 0;        // in blocks that are allocated, with what rounding up costs
  std::uint64_t kept_bytes = 0;          // small blocks that are free, kept for the same size
  std::uint64_t free_bytes = 0;          // the rest: reserved = active + kept + free
  std::uint64_t peak_bytes = 0;          // the most that active + kept ever was
  std::uint64_t largest_free_bytes = 0;  // in one piece
  double fragmentation_ratio = 0;        // 1 - largest_free / free; 0 when nothing is free
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t failures = 0;  // allocations that found nothing after all
  std::uint64_t waits = 0;     // times a stream was made to wait for another's work
  std::uint64_t drains = 0;    // times a thread waited for the device
  std::uint64_t gathers = 0;   // times free pieces were moved together
};

// Thread safe. Sizes are bytes. Blocks are aligned to 512 bytes, and cost their size rounded up to a multiple of that;
// those up to 8 KiB to one of eight sizes, of which each thread keeps some for itself.
class Pool {
 public:
  // In the current context, which must outlive the pool. Errors: kInvalidArgument for no capacity, kFailedPrecondition
  // without a context, kResourceExhausted with how much the device had, kUnavailable without a driver.
  static Result<std::unique_ptr<Pool>> create(const PoolOptions& options);

  // Waits for the device. Blocks still allocated go too.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // A block that work submitted to `stream` from now on may use; on another stream only once that waits for this one.
  // `stream` as the driver takes it: 0 and CU_STREAM_PER_THREAD are streams like others.
  // Errors: kInvalidArgument for 0 bytes; kResourceExhausted, and the message says what is reserved, active and free.
  Result<CUdeviceptr> allocate(std::uint64_t bytes, CUstream stream);

  // Gives a block back behind the work submitted to `stream` so far, which need not be the stream it was allocated on.
  // Errors: kInvalidArgument when no block of this pool that is in use starts there; nothing was changed.
  Status free(CUdeviceptr address, CUstream stream);

  // Before a stream is destroyed: waits for it, and what was freed on it is anybody's.
  Status forget(CUstream stream);

  PoolStats stats() const;

 private:
  class Impl;
  explicit Pool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// As lines for people: what is reserved, active, free, how fragmented, and what it took.
std::string to_text(const PoolStats& stats);

}  // namespace sluice::memory
