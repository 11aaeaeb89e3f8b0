#include "thread_cache.h"

#include <algorithm>

namespace sluice::memory {
namespace {

struct Caches {
  struct Entry {
    std::uint64_t pool;
    std::shared_ptr<ThreadCache> cache;
  };
  std::vector<Entry> entries;

  ~Caches() {
    for (const Entry& entry : entries) entry.cache->orphaned.store(true);
  }
};

thread_local Caches caches;

}  // namespace

ThreadCache* cache_of_this_thread(std::uint64_t pool) {
  for (const Caches::Entry& entry : caches.entries) {
    if (entry.pool == pool) return entry.cache.get();
  }
  return nullptr;
}

void set_cache_of_this_thread(std::uint64_t pool, std::shared_ptr<ThreadCache> cache) {
  // Those that only this thread still has are of pools that are gone.
  auto& entries = caches.entries;
  entries.erase(
      std::remove_if(entries.begin(), entries.end(), [](const auto& entry) { return entry.cache.use_count() == 1; }),
      entries.end());
  entries.push_back({pool, std::move(cache)});
}

}  // namespace sluice::memory
