// Where in one arena each intermediate result lies: results whose lives do not overlap share memory.
#pragma once

#include <cstddef>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::engine::cpu {

inline constexpr std::size_t kArenaAlignment = 64;  // a cache line, and what AVX-512 would want

struct Lifetime {
  std::size_t bytes = 0;
  std::size_t first = 0;  // the step that writes it
  std::size_t last = 0;   // the last step that reads it; >= first
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  // one for each lifetime, multiples of kArenaAlignment
  std::size_t arena_bytes = 0;
};

// Greedy by size: the largest first, each at the lowest offset that is free during its life (Pisarchyk and Lee 2020,
// "Efficient memory management for deep neural net inference", https://arxiv.org/abs/2001.03288).
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

}  // namespace sluice::engine::cpu
