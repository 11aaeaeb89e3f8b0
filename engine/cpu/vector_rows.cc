#include "cpu/vector_rows.h"

#include <cmath>

#include "cpu/simd.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {

float softmax_numerators(const float* x, std::int64_t count, float* y) {
  const std::int64_t whole = count / kLanes * kLanes, left = count - whole;
  const Vec least = vec(-__builtin_inff());
  Vec most = least;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    most = _mm256_max_ps(most, load(x + i));
  }
  const Vec mask = _mm256_castsi256_ps(lane_mask(left));
  if (left > 0) {
    most = _mm256_max_ps(most, _mm256_blendv_ps(least, load_some(x + whole, left), mask));
  }
  const Vec top = vec(most_of(most));
  Vec sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Vec value = exp(_mm256_sub_ps(load(x + i), top));
    sum = _mm256_add_ps(sum, value);
    store(y + i, value);
  }
  if (left > 0) {
    const Vec value = exp(_mm256_sub_ps(load_some(x + whole, left), top));
    sum = _mm256_add_ps(sum, _mm256_and_ps(value, mask));
    store_some(y + whole, value, left);
  }
  return 1.0f / sum_of(sum);
}

void softmax_row(const float* x, std::int64_t count, float* y) {
  const float factor = softmax_numerators(x, count, y);
  const Vec all = vec(factor);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(y + i, _mm256_mul_ps(load(y + i), all));
  }
  for (; i < count; ++i) {
    y[i] *= factor;
  }
}

void softmax_columns(const float* x, std::int64_t count, std::int64_t stride, std::int64_t lanes, float* y) {
  for (std::int64_t at = 0; at < lanes; at += kLanes) {
    const std::int64_t some = lanes - at < kLanes ? lanes - at : kLanes;
    Vec most = vec(-__builtin_inff()), sum = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < count; ++i) {
      most = _mm256_max_ps(most, load_some(x + i * stride + at, some));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const Vec value = exp(_mm256_sub_ps(load_some(x + i * stride + at, some), most));
      sum = _mm256_add_ps(sum, value);
      store_some(y + i * stride + at, value, some);
    }
    const Vec factor = _mm256_div_ps(vec(1.0f), sum);
    for (std::int64_t i = 0; i < count; ++i) {
      float* out = y + i * stride + at;
      store_some(out, _mm256_mul_ps(load_some(out, some), factor), some);
    }
  }
}

void normalize_row(const float* x, std::int64_t count, float epsilon, const float* scale, const float* bias, float* y) {
  const std::int64_t whole = count / kLanes * kLanes, left = count - whole;
  const Vec mask = _mm256_castsi256_ps(lane_mask(left));
  Vec sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    sum = _mm256_add_ps(sum, load(x + i));
  }
  if (left > 0) {
    sum = _mm256_add_ps(sum, load_some(x + whole, left));
  }
  const Vec mean = vec(sum_of(sum) / static_cast<float>(count));
  Vec squares = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Vec centred = _mm256_sub_ps(load(x + i), mean);
    squares = fma(centred, centred, squares);
  }
  if (left > 0) {
    const Vec centred = _mm256_and_ps(_mm256_sub_ps(load_some(x + whole, left), mean), mask);
    squares = fma(centred, centred, squares);
  }
  const Vec factor = vec(1.0f / std::sqrt(sum_of(squares) / static_cast<float>(count) + epsilon));
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Vec value = _mm256_mul_ps(_mm256_sub_ps(load(x + i), mean), factor);
    store(y + i, fma(value, load(scale + i), bias == nullptr ? _mm256_setzero_ps() : load(bias + i)));
  }
  if (left > 0) {
    const Vec value = _mm256_mul_ps(_mm256_sub_ps(load_some(x + whole, left), mean), factor);
    const Vec shift = bias == nullptr ? _mm256_setzero_ps() : load_some(bias + whole, left);
    store_some(y + whole, fma(value, load_some(scale + whole, left), shift), left);
  }
}

}  // namespace sluice::engine::cpu
SLUICE_AVX2_END
