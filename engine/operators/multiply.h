// The plain matrix product that MatMul, Gemm and their quantized forms share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::engine {

// Where element (i, k) of a matrix lies: i * row + k * column.
struct MatrixStride {
  std::int64_t row = 0, column = 0;
};

// row[j] = sum over k of a(i, k) * b(k, j), for 0 <= j < n, in type A. take_a and take_b convert elements to A.
template <class A, class TA, class TB, class TakeA, class TakeB>
void multiply_row(const TA* a, std::int64_t a_step, const TB* b, MatrixStride b_stride, std::int64_t n,
                  std::int64_t depth, A* row, TakeA take_a, TakeB take_b) {
  if (b_stride.column == 1) {
    std::fill_n(row, n, A{});
    for (std::int64_t k = 0; k < depth; ++k) {
      const A value = take_a(a[k * a_step]);
      const TB* line = b + k * b_stride.row;
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] += value * take_b(line[j], j);
      }
    }
    return;
  }
  for (std::int64_t j = 0; j < n; ++j) {
    A sum{};
    for (std::int64_t k = 0; k < depth; ++k) {
      sum += take_a(a[k * a_step]) * take_b(b[k * b_stride.row + j * b_stride.column], j);
    }
    row[j] = sum;
  }
}

}  // namespace sluice::engine
