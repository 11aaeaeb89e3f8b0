// What kernels of ConvTranspose share.
#pragma once

#include "operators/window.h"

namespace sluice::engine {

// `window` is that of the convolution that this one turns round: its `in` is our output, its `out` our input.
struct TransposeShape {
  Window window;
  std::int64_t batch = 0, groups = 0;
  std::int64_t channels = 0, filters = 0;  // of the input and of the output, in one group
};

// Checks x [N, C, ...] and w [C, M / group, ...] against the node. Errors: kInvalidArgument, and those of
// window_attributes.
Result<TransposeShape> transpose_shape(const Node& node, const Dims& x, const Dims& w);

}  // namespace sluice::engine
