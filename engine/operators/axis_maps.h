// Operators whose result takes each element from one place of the input, axis by axis: padding, tiling, nearest
// neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/schema.h"

namespace sluice::engine {

inline constexpr std::int64_t kNowhere = -1;  // in a map: the result takes the fill value

// For each axis of the result, the index in the input that each of its indices takes.
using AxisMaps = std::vector<std::vector<std::int64_t>>;

// The fill value is the one element of the input `fill_input` where that is there, `fill` (a number of any element
// type, converted) elsewhere. REQUIRES: a map for each dimension of the first input.
Result<std::unique_ptr<Kernel>> axis_map_kernel(const KernelContext& context, AxisMaps maps, double fill,
                                                std::size_t fill_input);

}  // namespace sluice::engine
