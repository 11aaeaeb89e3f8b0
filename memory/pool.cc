#include <algorithm>
#include <cstdio>

#include "impl.h"
#include "sluice/base/units.h"

namespace sluice::memory {
namespace {

std::atomic<std::uint64_t> pools{0};

// What is large lies at the low end of the pool, what is small at the high one.
constexpr std::uint64_t kLargeBytes = 1 << 20;

}  // namespace

Pool::Impl::Impl(const DriverCalls& driver, CUcontext context, std::unique_ptr<Backing> backing)
    : driver_(driver),
      context_(context),
      number_(++pools),
      backing_(std::move(backing)),
      slabs_(&heap_, backing_->addresses()),
      streams_(driver),
      draining_(heap_.add_owner()) {
  Stream& none = streams_.add(nullptr, draining_);
  none.ended = true;
  heap_.add({backing_->addresses().address, backing_->bytes()}, Heap::kNobody);
}

ThreadCache& Pool::Impl::cache() {
  if (ThreadCache* known = cache_of_this_thread(number_)) return *known;
  std::shared_ptr<ThreadCache> cache;
  {
    const Lock lock(mutex_);
    for (const std::shared_ptr<ThreadCache>& orphan : caches_) {
      if (!orphan->orphaned.load()) continue;
      cache = orphan;
      break;
    }
    if (cache == nullptr) cache = caches_.emplace_back(std::make_shared<ThreadCache>());
    cache->orphaned.store(false);
  }
  set_cache_of_this_thread(number_, cache);
  // CU_STREAM_PER_THREAD was the ended thread's own stream.
  const std::lock_guard cache_lock(cache->mutex);
  auto& streams = cache->streams;
  const auto gone = std::find_if(streams.begin(), streams.end(),
                                 [](const auto& stream) { return stream->stream == CU_STREAM_PER_THREAD; });
  if (gone != streams.end()) {
    const Lock lock(mutex_);
    streams_.of((*gone)->owner).ended = true;
    for (ThreadCache::Magazine& magazine : (*gone)->magazines) give_pieces(magazine.pieces.data(), magazine.count);
    streams.erase(gone);
  }
  return *cache;
}

// REQUIRES: the cache's lock.
ThreadCache::Stream& Pool::Impl::stream_in(ThreadCache* cache, CUstream stream) {
  if (ThreadCache::Stream* known = cache->find(stream)) return *known;
  auto added = std::make_unique<ThreadCache::Stream>();
  added->stream = stream;
  const Lock lock(mutex_);
  if (const Stream* known = stream == CU_STREAM_PER_THREAD ? nullptr : streams_.find(stream)) {
    added->owner = known->owner;
  } else {
    const int unused = streams_.unused();
    added->owner = streams_.add(stream, unused >= 0 ? unused : heap_.add_owner()).owner;
  }
  return *cache->streams.emplace_back(std::move(added));
}

void Pool::Impl::note_peak() {
  counts_.peak_bytes = std::max(counts_.peak_bytes, heap_.total_bytes() - heap_.free_bytes());
}

void Pool::Impl::give_pieces(const std::uint64_t* pieces, std::size_t count) {
  // A slab that goes back to the heap with them is freed behind its owner's stream.
  for (std::size_t i = 0; i < count; ++i) ++streams_.of(slabs_.find(pieces[i])->owner).given;
  slabs_.give(pieces, count);
}

Result<CUdeviceptr> Pool::Impl::allocate(std::uint64_t bytes, CUstream stream) {
  if (bytes == 0) return Status::error(Code::kInvalidArgument, "an allocation of 0 bytes");
  ThreadCache& own = cache();
  if (bytes <= kSmallBytes) return allocate_small(small_class(bytes), &own, stream);
  int owner = 0;
  {
    const std::lock_guard lock(own.mutex);
    owner = stream_in(&own, stream).owner;
  }
  Lock lock(mutex_);
  Heap::Block* block = nullptr;
  const auto attempt = [&] {
    block = heap_.take(bytes, owner, bytes >= kLargeBytes ? Heap::End::kLow : Heap::End::kHigh);
    return block != nullptr;
  };
  const char* more = "";
  if (!attempt() && !reclaim(owner, bytes, attempt, &lock, &more)) {
    lock.unlock();
    return exhausted(bytes, more);
  }
  blocks_.insert(block);
  counts_.active_bytes += block->bytes;
  ++counts_.allocations;
  note_peak();
  return block->address;
}

Result<CUdeviceptr> Pool::Impl::allocate_small(int size_class, ThreadCache* own, CUstream stream) {
  const auto index = static_cast<std::size_t>(size_class);
  std::uint64_t address = 0;
  int owner = 0;
  {
    const std::lock_guard cache_lock(own->mutex);
    ThreadCache::Stream& kept = stream_in(own, stream);
    ThreadCache::Magazine& magazine = kept.magazines[index];
    owner = kept.owner;
    if (magazine.count == 0) {
      const Lock lock(mutex_);
      magazine.count = slabs_.take(size_class, owner, ThreadCache::kPieces / 2, magazine.pieces.data());
      note_peak();
    }
    if (magazine.count > 0) address = magazine.pieces[--magazine.count];
  }
  if (address == 0) {
    Lock lock(mutex_);
    const auto attempt = [&] { return slabs_.take(size_class, owner, 1, &address) == 1; };
    const char* more = "";
    if (!reclaim(owner, kSlabBytes, attempt, &lock, &more)) {
      lock.unlock();
      return exhausted(kSmallSizes[index], more);
    }
    note_peak();
  }
  Slab* slab = slabs_.find(address);
  slab->mark_used(slab->piece_at(address));
  own->allocations.fetch_add(1, std::memory_order_relaxed);
  own->used_bytes.fetch_add(static_cast<std::int64_t>(kSmallSizes[index]), std::memory_order_relaxed);
  return address;
}

Status Pool::Impl::free(CUdeviceptr address, CUstream stream) {
  if (Slab* slab = slabs_.find(address)) return free_small(slab, address, stream);
  ThreadCache& own = cache();
  int owner = 0;
  {
    const std::lock_guard lock(own.mutex);
    owner = stream_in(&own, stream).owner;
  }
  const Lock lock(mutex_);
  Heap::Block* block = blocks_.remove(address);
  if (block == nullptr)
    return Status::error(Code::kInvalidArgument, "no block of this pool in use starts at 0x%llx; was it freed before?",
                         address);
  counts_.active_bytes -= block->bytes;
  ++counts_.frees;
  heap_.give(block, owner);
  ++streams_.of(owner).given;
  return {};
}

Status Pool::Impl::free_small(Slab* slab, CUdeviceptr address, CUstream stream) {
  const int piece = slab->piece_at(address);
  if (piece < 0 || !slab->mark_free(piece))
    return Status::error(Code::kInvalidArgument, "no block of this pool in use starts at 0x%llx; was it freed before?",
                         address);
  const auto index = static_cast<std::size_t>(slab->size_class);
  ThreadCache& own = cache();
  own.frees.fetch_add(1, std::memory_order_relaxed);
  own.used_bytes.fetch_sub(static_cast<std::int64_t>(kSmallSizes[index]), std::memory_order_relaxed);
  const std::lock_guard cache_lock(own.mutex);
  ThreadCache::Stream& kept = stream_in(&own, stream);
  if (kept.owner != slab->owner) {
    // Its slab's stream may use it again only behind this one.
    const Lock lock(mutex_);
    Stream& behind = streams_.of(kept.owner);
    behind.parked.push_back(address);
    ++behind.given;
    return {};
  }
  ThreadCache::Magazine& magazine = kept.magazines[index];
  if (magazine.count == ThreadCache::kPieces) {
    constexpr std::size_t kHalf = ThreadCache::kPieces / 2;
    const Lock lock(mutex_);
    give_pieces(magazine.pieces.data(), kHalf);  // the oldest ones
    std::copy(magazine.pieces.begin() + kHalf, magazine.pieces.end(), magazine.pieces.begin());
    magazine.count = kHalf;
  }
  magazine.pieces[magazine.count++] = address;
  return {};
}

PoolStats Pool::Impl::stats() {
  const Lock lock(mutex_);
  PoolStats result = counts_;
  std::int64_t small = 0;
  for (const std::shared_ptr<ThreadCache>& cache : caches_) {
    result.allocations += cache->allocations.load(std::memory_order_relaxed);
    result.frees += cache->frees.load(std::memory_order_relaxed);
    small += cache->used_bytes.load(std::memory_order_relaxed);
  }
  // Other threads count on meanwhile.
  const std::uint64_t used = std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(small, 0)), slabs_.bytes());
  result.reserved_bytes = backing_->bytes();
  result.active_bytes += used;
  result.kept_bytes = slabs_.bytes() - used;
  result.free_bytes = heap_.free_bytes();
  result.largest_free_bytes = heap_.largest_free_bytes();
  if (result.free_bytes > 0) {
    result.fragmentation_ratio =
        1 - static_cast<double>(result.largest_free_bytes) / static_cast<double>(result.free_bytes);
  }
  return result;
}

Status Pool::Impl::exhausted(std::uint64_t bytes, const char* more) {
  {
    const Lock lock(mutex_);
    ++counts_.failures;
  }
  const PoolStats now = stats();
  return Status::error(
      Code::kResourceExhausted,
      "the pool of %s has no %s in one piece: %s active, %s kept, %s free, largest %s, fragmentation %.0f "
      "%%%s",
      format_bytes(now.reserved_bytes).c_str(), format_bytes(bytes).c_str(), format_bytes(now.active_bytes).c_str(),
      format_bytes(now.kept_bytes).c_str(), format_bytes(now.free_bytes).c_str(),
      format_bytes(now.largest_free_bytes).c_str(), 100 * now.fragmentation_ratio, more);
}

Result<std::unique_ptr<Pool>> Pool::create(const PoolOptions& options) {
  if (options.capacity_bytes == 0) return Status::error(Code::kInvalidArgument, "a pool of 0 bytes");
  Result<const DriverCalls*> driver = DriverCalls::get();
  if (!driver.ok()) return driver.status();
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (CUresult code = (*driver)->current_context(&context); code != CUDA_SUCCESS || context == nullptr) {
    return Status::error(Code::kFailedPrecondition,
                         "no CUDA context is current: make one before the pool (cudaFree(0) or cuCtxSetCurrent)");
  }
  if (CUresult code = (*driver)->context_device(&device); code != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuCtxGetDevice: %s", (*driver)->name_of(code));
  Result<std::unique_ptr<Backing>> backing =
      Backing::create(**driver, device, options.capacity_bytes, options.exportable);
  if (!backing.ok()) return backing.status();
  return std::unique_ptr<Pool>(new Pool(std::make_unique<Impl>(**driver, context, std::move(*backing))));
}

Pool::Pool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pool::~Pool() = default;
Result<CUdeviceptr> Pool::allocate(std::uint64_t bytes, CUstream stream) { return impl_->allocate(bytes, stream); }
Status Pool::free(CUdeviceptr address, CUstream stream) { return impl_->free(address, stream); }
Status Pool::forget(CUstream stream) { return impl_->forget(stream); }
PoolStats Pool::stats() const { return impl_->stats(); }

std::string to_text(const PoolStats& stats) {
  char text[640];
  std::snprintf(
      text, sizeof text,
      "reserved %s, active %s, kept %s, free %s\n"
      "peak %s, largest free %s, fragmentation %.0f %%\n"
      "%llu allocations, %llu frees, %llu failures; %llu waits between streams, %llu for the device, %llu times "
      "moved together\n",
      format_bytes(stats.reserved_bytes).c_str(), format_bytes(stats.active_bytes).c_str(),
      format_bytes(stats.kept_bytes).c_str(), format_bytes(stats.free_bytes).c_str(),
      format_bytes(stats.peak_bytes).c_str(), format_bytes(stats.largest_free_bytes).c_str(),
      100 * stats.fragmentation_ratio, static_cast<unsigned long long>(stats.allocations),
      static_cast<unsigned long long>(stats.frees), static_cast<unsigned long long>(stats.failures),
      static_cast<unsigned long long>(stats.waits), static_cast<unsigned long long>(stats.drains),
      static_cast<unsigned long long>(stats.gathers));
  return text;
}

}  // namespace sluice::memory
