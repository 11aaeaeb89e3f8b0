// Places for temporaries in one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::graph {

struct Placement {
  std::vector<std::uint64_t> offsets;
  std::uint64_t peak = 0;         // the block's size
  std::uint64_t lower_bound = 0;  // some temporaries that are all alive together take as much: none can do with less
};

// `conflicts[i]` are the temporaries that may be alive together with i, both ways round. Sizes are not 0.
Placement place(const std::vector<std::uint64_t>& sizes, const std::vector<std::vector<std::uint32_t>>& conflicts);

// The most that temporaries which may all be alive together take: the exact lower bound of any placement, where "a ends
// before b begins" (`before[a]` lists all such b) is a strict partial order. By a maximum flow; for tests and figures.
std::uint64_t heaviest_together(const std::vector<std::uint64_t>& sizes,
                                const std::vector<std::vector<std::uint32_t>>& before);

}  // namespace sluice::graph
