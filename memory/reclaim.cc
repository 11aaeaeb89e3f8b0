// What a pool does before an allocation fails.
#include <algorithm>

#include "impl.h"

namespace sluice::memory {

// The pool's context is current meanwhile, and calls that a capture elsewhere in this thread would forbid are allowed:
// they concern streams that are not captured.
class Pool::Impl::DriverSection {
 public:
  explicit DriverSection(const Impl& pool) : driver_(pool.driver_) {
    pushed_ = driver_.push_context(pool.context_) == CUDA_SUCCESS;
    driver_.exchange_capture_mode(&mode_);
  }
  ~DriverSection() {
    driver_.exchange_capture_mode(&mode_);
    CUcontext popped = nullptr;
    if (pushed_) driver_.pop_context(&popped);
  }
  DriverSection(const DriverSection&) = delete;
  DriverSection& operator=(const DriverSection&) = delete;

 private:
  const DriverCalls& driver_;
  bool pushed_ = false;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

Pool::Impl::~Impl() {
  const DriverSection section(*this);
  driver_.synchronize_context();  // memory that is still in use must not be unmapped
  backing_.reset();
}

bool Pool::Impl::reclaim(int owner, std::uint64_t bytes, const Attempt& attempt, Lock* lock, const char** more) {
  empty_caches(lock);
  if (attempt()) return true;
  const DriverSection section(*this);
  if (streams_.is_capturing(streams_.of(owner))) {
    *more = "; its stream is being captured, so others' memory cannot be had";
    return false;
  }
  collect_finished(owner);
  if (attempt() || wait_for_others(owner, attempt)) return true;
  // A piece may lie across what is nobody's and the stream's own.
  heap_.move(Heap::kNobody, owner);
  if (attempt()) return true;
  if (bytes > heap_.free_bytes() + slabs_.bytes()) return false;
  // Twice: slabs that the first time empties go back behind their own streams.
  for (int round = 0; round < 2; ++round) {
    drain(lock);
    if (attempt()) return true;
    const auto& streams = streams_.all();
    if (std::none_of(streams.begin(), streams.end(), [this](const Stream& stream) { return has_any(stream); })) break;
  }
  return gather(bytes) && attempt();
}

void Pool::Impl::empty_caches(Lock* lock) {
  const std::vector<std::shared_ptr<ThreadCache>> caches = caches_;
  std::vector<std::uint64_t> pieces;
  lock->unlock();  // a cache's lock comes first
  for (const std::shared_ptr<ThreadCache>& cache : caches) {
    const std::lock_guard cache_lock(cache->mutex);
    for (const auto& stream : cache->streams) {
      for (ThreadCache::Magazine& magazine : stream->magazines) {
        pieces.insert(pieces.end(), magazine.pieces.begin(),
                      magazine.pieces.begin() + static_cast<std::ptrdiff_t>(magazine.count));
        magazine.count = 0;
      }
    }
  }
  lock->lock();
  give_pieces(pieces.data(), pieces.size());
  slabs_.release_empty();
  for (Stream& stream : streams_.all()) ++stream.given;
}

void Pool::Impl::give_parked(std::vector<std::uint64_t>* parked) {
  give_pieces(parked->data(), parked->size());
  parked->clear();
}

void Pool::Impl::collect_finished(int owner) {
  const Stream own = streams_.of(owner);
  for (Stream& stream : streams_.all()) {
    if (!has_any(stream)) continue;
    if (!stream.forgotten && !(streams_.is_reachable(stream, own) && streams_.is_done(stream))) continue;
    heap_.move(stream.owner, Heap::kNobody);
    give_parked(&stream.parked);
  }
  slabs_.release_empty();
}

bool Pool::Impl::wait_for_others(int owner, const Attempt& attempt) {
  const Stream own = streams_.of(owner);
  std::vector<int> others;
  for (const Stream& stream : streams_.all()) {
    if (stream.owner != owner && has_any(stream) && streams_.is_reachable(stream, own)) others.push_back(stream.owner);
  }
  std::sort(others.begin(), others.end(), [&](int a, int b) { return heap_.free_bytes(a) > heap_.free_bytes(b); });
  for (int other : others) {
    Stream& stream = streams_.of(other);
    if (!streams_.record(&stream) || driver_.wait_event(own.stream, stream.event, 0) != CUDA_SUCCESS) continue;
    ++counts_.waits;
    heap_.move(other, owner);
    ++streams_.of(owner).given;
    // Of small blocks only those of this stream's own slabs, which it may use again now that it waits.
    const auto own_slab = [&](std::uint64_t piece) { return slabs_.find(piece)->owner == owner; };
    const auto rest = std::partition(stream.parked.begin(), stream.parked.end(), own_slab);
    give_pieces(stream.parked.data(), static_cast<std::size_t>(rest - stream.parked.begin()));
    stream.parked.erase(stream.parked.begin(), rest);
    if (attempt()) return true;
  }
  return false;
}

// Waits, without the lock, for all that was freed until now; what is freed meanwhile keeps its owner.
void Pool::Impl::drain(Lock* lock) {
  std::vector<CUevent> events;
  std::vector<std::uint64_t> parked;
  std::vector<int> ended;
  bool all = false;
  lock->unlock();
  const std::lock_guard one(drain_mutex_);
  lock->lock();
  for (Stream& stream : streams_.all()) {
    if (!has_any(stream)) continue;
    if (!stream.ended && streams_.is_capturing(stream)) continue;
    if (stream.ended || stream.per_thread || !streams_.record(&stream)) {
      all = true;
    } else {
      events.push_back(stream.event);
    }
    if (stream.ended) ended.push_back(stream.owner);
    heap_.move(stream.owner, draining_);
    parked.insert(parked.end(), stream.parked.begin(), stream.parked.end());
    stream.parked.clear();
  }
  ++counts_.drains;
  lock->unlock();
  for (CUevent event : events) driver_.event_synchronize(event);
  const bool device_done = all && driver_.synchronize_context() == CUDA_SUCCESS;
  lock->lock();
  for (int owner : ended) streams_.of(owner).forgotten = device_done;
  heap_.move(draining_, Heap::kNobody);
  give_parked(&parked);
  slabs_.release_empty();
}

bool Pool::Impl::gather(std::uint64_t bytes) {
  if (!backing_->can_gather()) return false;
  const std::uint64_t chunk = backing_->chunk_bytes();
  const std::vector<Heap::Range> pieces =
      heap_.remove_chunks((bytes + chunk - 1) / chunk * chunk, chunk, Heap::kNobody);
  if (pieces.empty()) return false;
  Result<Heap::Range> gathered = backing_->gather(pieces);
  if (gathered.ok()) {
    ++counts_.gathers;
    heap_.add(*gathered, Heap::kNobody);
    return true;
  }
  for (const Heap::Range& piece : pieces) {
    if (backing_->is_mapped(piece.address)) heap_.add(piece, Heap::kNobody);
  }
  return false;
}

Status Pool::Impl::forget(CUstream stream) {
  const DriverSection section(*this);
  Lock lock(mutex_);
  Stream* known = streams_.find(stream);
  if (known == nullptr) return {};  // it never used the pool
  if (!streams_.record(known)) return Status::error(Code::kFailedPrecondition, "the stream is captured or not valid");
  const int owner = known->owner;
  const CUevent event = known->event;
  known->ended = true;
  const std::vector<std::shared_ptr<ThreadCache>> caches = caches_;
  lock.unlock();
  if (CUresult code = driver_.event_synchronize(event); code != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuEventSynchronize: %s", driver_.name_of(code));
  std::vector<std::uint64_t> pieces;
  for (const std::shared_ptr<ThreadCache>& cache : caches) {
    const std::lock_guard cache_lock(cache->mutex);
    const auto kept = std::find_if(cache->streams.begin(), cache->streams.end(),
                                   [&](const auto& entry) { return entry->owner == owner; });
    if (kept == cache->streams.end()) continue;
    for (const ThreadCache::Magazine& magazine : (*kept)->magazines) {
      pieces.insert(pieces.end(), magazine.pieces.begin(),
                    magazine.pieces.begin() + static_cast<std::ptrdiff_t>(magazine.count));
    }
    cache->streams.erase(kept);
  }
  lock.lock();
  give_pieces(pieces.data(), pieces.size());
  give_parked(&streams_.of(owner).parked);
  slabs_.release_empty();
  heap_.move(owner, Heap::kNobody);
  streams_.of(owner).forgotten = true;
  return {};
}

}  // namespace sluice::memory
