// Pools of stream-ordered memory: counted by what the driver says that they have reserved; see memory.h.
#include "memory.h"
#include "real.h"

namespace sluice::shim {
namespace {

struct Pool {
  CUmemoryPool handle = nullptr;  // null with a session: the memory of that device's graphs
  Session* session = nullptr;     // null: free
  std::uint64_t counted = 0;      // on the board, of what the driver has reserved
  std::uint64_t in_flight = 0;    // asked for by calls that are inside the driver
};
constexpr int kPools = 64;
Pool pools[kPools];
int pool_count = 0;
Mutex pools_lock;  // held around queries of the driver, which do not wait for work
std::atomic<bool> any{false}, changed{false}, graphs_allocate{false};

// All below REQUIRE pools_lock.

std::uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
  cuuint64_t value = 0;
  if (real.mem_pool_get_attribute == nullptr || real.mem_pool_get_attribute(pool, which, &value) != CUDA_SUCCESS)
    return 0;
  return value;
}

std::uint64_t reserved(const Pool& pool) {
  if (pool.handle != nullptr) return attribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  cuuint64_t value = 0;
  if (real.graph_mem_get_attribute == nullptr ||
      real.graph_mem_get_attribute(pool.session->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value) !=
          CUDA_SUCCESS)
    return 0;
  return value;
}

void settle(Pool& pool) {
  const std::uint64_t now = reserved(pool);
  if (now > pool.counted) board::add_memory(pool.session->board, pool.session->client, now - pool.counted);
  if (now < pool.counted) give_memory(pool.session, pool.counted - now);
  pool.counted = now;
}

int index_of(CUmemoryPool handle, const Session* session) {
  for (int i = 0; i < pool_count; ++i) {
    if (pools[i].session != nullptr && pools[i].handle == handle && (handle != nullptr || pools[i].session == session))
      return i;
  }
  return -1;
}

int add_pool(CUmemoryPool handle, Session* session) {
  int at = 0;
  while (at < pool_count && pools[at].session != nullptr) ++at;
  if (at == kPools) return -1;
  if (at == pool_count) ++pool_count;
  pools[at] = {handle, session, 0, 0};
  any.store(true);
  return at;
}

// A pool that the program did not create: the default pool of a device that has a session. Others are imported.
int adopt(CUmemoryPool handle) {
  if (real.device_get_default_mem_pool == nullptr) return -1;
  for (int i = 0; Session* session = session_at(i); ++i) {
    CUmemoryPool pool = nullptr;
    if (real.device_get_default_mem_pool(&pool, session->device) == CUDA_SUCCESS && pool == handle)
      return add_pool(handle, session);
  }
  return -1;
}

// What the pool has to grow by to serve `bytes`, as far as its figures tell.
std::uint64_t growth(const Pool& pool, std::uint64_t bytes) {
  const std::uint64_t used = attribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) + pool.in_flight;
  const std::uint64_t spare = pool.counted > used ? pool.counted - used : 0;
  return bytes > spare ? bytes - spare : 0;
}

}  // namespace

PoolTaking::PoolTaking(Session* session, CUmemoryPool pool, std::uint64_t bytes) : bytes_(bytes) {
  if (session == nullptr) return;
  if (pool == nullptr &&
      (real.device_get_mem_pool == nullptr || real.device_get_mem_pool(&pool, session->device) != CUDA_SUCCESS))
    return;
  {
    Guard guard(pools_lock);
    index_ = index_of(pool, nullptr);
    if (index_ < 0) index_ = adopt(pool);
    if (index_ < 0) return;
    Pool& at = pools[index_];
    session_ = at.session;
    settle(at);
    extra_ = growth(at, bytes);
    at.in_flight += bytes;
  }
  if (extra_ == 0 || take_memory(session_, extra_)) return;
  granted_ = false;
  Guard guard(pools_lock);
  pools[index_].in_flight -= bytes;
}

void PoolTaking::done(CUresult result) {
  if (index_ < 0 || !granted_) return;
  {
    Guard guard(pools_lock);
    Pool& at = pools[index_];
    at.in_flight -= bytes_;
    // First the driver's figure, then what was reserved for it, so that nobody takes it in between.
    if (at.session == session_) settle(at);
    give_memory(session_, extra_);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) note_out_of_memory(session_, bytes_);
}

void pool_created(CUmemoryPool pool, CUdevice device) {
  Session* session = attach_device(device);
  if (session == nullptr) return;
  Guard guard(pools_lock);
  add_pool(pool, session);
}

void pool_destroyed(CUmemoryPool pool) {
  Guard guard(pools_lock);
  const int at = index_of(pool, nullptr);
  if (at < 0) return;
  give_memory(pools[at].session, pools[at].counted);
  // Calls that are inside the driver with it have lost; their own reservations they give back themselves.
  pools[at] = {};
}

void graph_memory_used(Session* session) {
  if (session == nullptr) return;
  graphs_allocate.store(true);
  changed.store(true);
  Guard guard(pools_lock);
  if (index_of(nullptr, session) < 0) add_pool(nullptr, session);
}

void pools_changed() { changed.store(true, std::memory_order_relaxed); }

void graph_launched() {
  if (graphs_allocate.load(std::memory_order_relaxed)) changed.store(true);
}

void settle_pools() {
  if (!any.load(std::memory_order_relaxed)) return;
  Guard guard(pools_lock);
  for (int i = 0; i < pool_count; ++i) {
    if (pools[i].session != nullptr) settle(pools[i]);
  }
}

void settle_pools_if_changed() {
  if (!changed.load(std::memory_order_relaxed)) return;
  changed.store(false);
  settle_pools();
}

bool trim_pools() {
  if (!any.load(std::memory_order_relaxed) || real.mem_pool_trim_to == nullptr) return false;
  Guard guard(pools_lock);
  for (int i = 0; i < pool_count; ++i) {
    if (pools[i].session == nullptr) continue;
    if (pools[i].handle != nullptr) real.mem_pool_trim_to(pools[i].handle, 0);
    settle(pools[i]);
  }
  return true;
}

}  // namespace sluice::shim
