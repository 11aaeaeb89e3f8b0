// Numpy's broadcasting as ONNX uses it: shapes, and a walk over the result with a position in each operand.
// https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "operators/schema.h"

namespace sluice::engine {

// The shape of the result. Errors: kInvalidArgument, naming the node.
Result<Dims> broadcast_dims(const ShapeContext& context, const Dims& a, const Dims& b);

// Shapes of all inputs, broadcast; for operators with one result.
Status infer_broadcast(ShapeContext& context);

// Row-major strides of `dims`, in elements.
Dims strides_of(const Dims& dims);

// How to walk N operands along a result. Neighbouring dimensions that all operands walk alike are one. Strides are in
// elements; 0 where the operand repeats.
template <std::size_t N>
class BroadcastWalk {
 public:
  // REQUIRES: every operand broadcasts to `result`.
  [[gnu::noinline]] BroadcastWalk(const Dims& result, const std::array<Dims, N>& operands) {
    std::array<Dims, N> strides;
    for (std::size_t n = 0; n < N; ++n) {
      const Dims own = strides_of(operands[n]);
      strides[n].assign(result.size(), 0);
      const std::size_t lead = result.size() - operands[n].size();
      for (std::size_t d = 0; d < own.size(); ++d) {
        strides[n][lead + d] = operands[n][d] == 1 ? 0 : own[d];
      }
    }
    dims_.clear();
    for (std::size_t d = 0; d < result.size(); ++d) {
      if (result[d] == 1) {
        continue;
      }
      bool merges = !dims_.empty();
      for (std::size_t n = 0; n < N && merges; ++n) {
        merges = strides_[n].back() == strides[n][d] * result[d];
      }
      if (merges) {
        dims_.back() *= result[d];
        for (std::size_t n = 0; n < N; ++n) {
          strides_[n].back() = strides[n][d];
        }
      } else {
        dims_.push_back(result[d]);
        for (std::size_t n = 0; n < N; ++n) {
          strides_[n].push_back(strides[n][d]);
        }
      }
    }
    if (dims_.empty()) {
      dims_.push_back(1);
      for (std::size_t n = 0; n < N; ++n) {
        strides_[n].push_back(0);
      }
    }
  }

  // Calls row(out_offset, offsets, length, strides) for each innermost row: `offsets` where each operand starts,
  // `strides` its step along the row.
  template <class Row>
  void for_each_row(Row&& row) const {
    using Plain = std::remove_reference_t<Row>;
    walk(&row, [](void* call, std::int64_t out, const Offsets& offsets, std::int64_t length, const Offsets& steps) {
      (*static_cast<Plain*>(call))(out, offsets, length, steps);
    });
  }

 private:
  using Offsets = std::array<std::int64_t, N>;
  using Call = void (*)(void*, std::int64_t, const Offsets&, std::int64_t, const Offsets&);

  // Out of line: inlined into each of some hundred kernels it would make the build long.
  [[gnu::noinline]] void walk(void* row, Call call) const {
    const std::size_t rank = dims_.size();
    const std::int64_t length = dims_.back();
    std::array<std::int64_t, kMaxRank> index{};
    Offsets offsets{}, steps{};
    for (std::size_t n = 0; n < N; ++n) {
      steps[n] = strides_[n].back();
    }
    for (const std::int64_t dim : dims_) {
      if (dim == 0) {
        return;
      }
    }
    for (std::int64_t out = 0;; out += length) {
      call(row, out, offsets, length, steps);
      std::size_t d = rank - 1;
      while (d > 0) {
        --d;
        for (std::size_t n = 0; n < N; ++n) {
          offsets[n] += strides_[n][d];
        }
        if (++index[d] < dims_[d]) {
          break;
        }
        for (std::size_t n = 0; n < N; ++n) {
          offsets[n] -= strides_[n][d] * dims_[d];
        }
        index[d] = 0;
        if (d == 0) {
          return;
        }
      }
      if (rank == 1) {
        return;
      }
    }
  }

  Dims dims_;
  std::array<Dims, N> strides_;
};

}  // namespace sluice::engine
