#include "cpu/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace sluice::engine::cpu {

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t id : order) {
    const Lifetime& life = lifetimes[id];
    const std::size_t bytes = (life.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const Lifetime& taken = lifetimes[other];
      if (taken.last < life.first || life.last < taken.first) {
        continue;
      }
      if (offset + bytes <= plan.offsets[other]) {
        break;
      }
      const std::size_t end =
          plan.offsets[other] + (taken.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
      offset = std::max(offset, end);
    }
    plan.offsets[id] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](std::size_t value, std::size_t other) { return value < plan.offsets[other]; }),
                  id);
  }
  return plan;
}

}  // namespace sluice::engine::cpu
