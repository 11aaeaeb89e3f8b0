// Numpy's matmul as ONNX uses it: shapes, and which matrices of the operands make which of the result.
#pragma once

#include "operators/broadcast.h"

namespace sluice::engine {

struct MatMulShape {
  std::int64_t m = 1, n = 1, k = 0;
  Dims out;
  // Through the matrices of the result; offsets count the operands' matrices.
  BroadcastWalk<2> batches{Dims{}, {Dims{}, Dims{}}};

  // Calls f(index of a's matrix, index of b's) for each matrix of the result, in order.
  template <class F>
  void for_each(F f) const {
    batches.for_each_row([&](std::int64_t, const std::array<std::int64_t, 2>& offsets, std::int64_t length,
                             const std::array<std::int64_t, 2>& steps) {
      for (std::int64_t i = 0; i < length; ++i) {
        f(offsets[0] + i * steps[0], offsets[1] + i * steps[1]);
      }
    });
  }
};

// A vector is a row on the left and a column on the right, and leaves no dimension. Errors: kInvalidArgument.
Result<MatMulShape> matmul_shape(const Node& node, const Dims& a, const Dims& b);

}  // namespace sluice::engine
