// What this process holds of each GPU's memory, counted on the board, and the job's limit.
//
// How each road is counted
//   * cuMemAlloc, cuMemAllocManaged: the bytes asked for. cuMemAllocPitch: pitch times height, as the driver chose it.
//   * Arrays and mipmapped arrays: elements times their size, all levels, without the driver's padding; sparse and
//     deferred ones hold nothing of their own.
//   * cuMemCreate on a device: its size, from creation until it is neither held by a handle nor mapped.
//   * Stream-ordered pools: what the pool has reserved from the device, whether in use or kept for later (the driver's
//     CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT). Before an allocation it may grow by what it cannot serve from its free
//     part; afterwards, and when the program waits for work that may have given memory back, the driver's own figure
//     counts. A pool grows in chunks, so it may end up beyond the limit by less than a chunk; nothing more is granted
//     then.
//   * Memory of graphs: what the driver has reserved for them, counted but not refused: it appears during a launch.
// Contexts, modules and what the driver takes for itself are not counted. What belongs to another process (interprocess
// handles, imported pools) counts there.
//
// Over the limit, unused parts of pools are given back to the driver, and if that is not enough the call fails with
// CUDA_ERROR_OUT_OF_MEMORY, before it reaches the driver. Fails open: no board, no session, or a table that is full
// means not counted.
//
// Thread safety: everything may be called from any thread. No lock is held around a driver call that could block.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "session.h"

namespace sluice::shim {

// ---- counting -------------------------------------------------------------------------------------------------

// Reserves `bytes`; a null session is granted everything. False: the limit; it has been said who holds what.
bool take_memory(Session* session, std::uint64_t bytes);
void give_memory(Session* session, std::uint64_t bytes);
// The driver itself has no `bytes` left: says who holds what, once a job.
void note_out_of_memory(Session* session, std::uint64_t bytes);

// ---- what is held, by address or handle -----------------------------------------------------------------------

enum class Holder : std::uint64_t { kAddress = 1, kArray = 2, kHandle = 3, kMapping = 4, kBlock = 5 };

struct Held {
  std::uint64_t bytes = 0;
  CUcontext context = nullptr;  // goes with this context; null: with the process
  Session* session = nullptr;
  std::uint64_t block = 0;                  // of handles and mappings: which memory
  std::uint32_t handles = 0, mappings = 0;  // of blocks
};

// Remembers what an address or handle stands for. False when the table is full: then it is not counted either.
bool remember(Holder kind, std::uint64_t key, const Held& held);
// Takes it out; false if it is unknown. Two threads never get the same.
bool forget_held(Holder kind, std::uint64_t key, Held* out);

// A block of cuMemCreate, with its first handle; what it holds was taken before.
void add_block(std::uint64_t handle, Session* session, std::uint64_t bytes);
void retain_block(std::uint64_t handle);
void map_block(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle);
// After the driver's success; the memory is given back with the last of handles and mappings.
void release_block(std::uint64_t handle);
void unmap_blocks(std::uint64_t address, std::uint64_t bytes);

// A context is gone, and what was allocated in it. `primary_of`: the primary context of that device, where it is known.
void context_gone(CUcontext context);
void note_primary(CUdevice device, CUcontext context);
void primary_gone(CUdevice device);

// ---- pools ----------------------------------------------------------------------------------------------------

// One allocation from a pool, around the driver's call. The pool the device uses now where `pool` is null.
class PoolTaking {
 public:
  PoolTaking(Session* session, CUmemoryPool pool, std::uint64_t bytes);
  bool granted() const { return granted_; }
  void done(CUresult result);

 private:
  int index_ = -1;
  Session* session_ = nullptr;
  std::uint64_t bytes_ = 0, extra_ = 0;
  bool granted_ = true;
};
void pool_created(CUmemoryPool pool, CUdevice device);
void pool_destroyed(CUmemoryPool pool);
void graph_memory_used(Session* session);
// Pools may have shrunk or grown: look when the program next waits.
void pools_changed();
void graph_launched();
// Reads what all pools have reserved now. settle_pools_if_changed costs one load where nothing changed.
void settle_pools();
void settle_pools_if_changed();
// Gives unused parts of the pools back to the driver. False where there are no pools.
bool trim_pools();

}  // namespace sluice::shim
