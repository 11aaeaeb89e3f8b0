// Softmax and normalisation of rows of floats. REQUIRES: has_avx2(); count > 0.
#pragma once

#include <cstdint>

namespace sluice::engine::cpu {

// y = exp(x - max) / sum; y may be x.
void softmax_row(const float* x, std::int64_t count, float* y);
// The same without the division: returns 1 / sum.
float softmax_numerators(const float* x, std::int64_t count, float* y);
// Softmax along an axis of `count` elements `stride` apart, for `lanes` (up to 64) neighbours at once.
void softmax_columns(const float* x, std::int64_t count, std::int64_t stride, std::int64_t lanes, float* y);

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias; bias may be nullptr, y may be x.
void normalize_row(const float* x, std::int64_t count, float epsilon, const float* scale, const float* bias, float* y);

}  // namespace sluice::engine::cpu
