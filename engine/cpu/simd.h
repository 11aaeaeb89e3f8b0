// Eight floats at a time and the functions of them that kernels need, for AVX2 with FMA.
//
// Include it between SLUICE_AVX2_BEGIN and SLUICE_AVX2_END only, after all other headers: what stands there is compiled
// for AVX2 although the rest of the program is not, and must be called only where has_avx2().
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/avx2.h"
#include "operators/activation.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {

using Vec = __m256;
inline constexpr std::int64_t kLanes = 8;

[[gnu::always_inline]] inline Vec vec(float x) { return _mm256_set1_ps(x); }
[[gnu::always_inline]] inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
[[gnu::always_inline]] inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

// The first `count` (0 to 8) lanes.
[[gnu::always_inline]] inline __m256i lane_mask(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
[[gnu::always_inline]] inline Vec load_some(const float* p, std::int64_t count) {
  return _mm256_maskload_ps(p, lane_mask(count));
}
[[gnu::always_inline]] inline void store_some(float* p, Vec x, std::int64_t count) {
  _mm256_maskstore_ps(p, lane_mask(count), x);
}

[[gnu::always_inline]] inline float sum_of(Vec x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
[[gnu::always_inline]] inline float most_of(Vec x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// NaN in x stays NaN: max and min return the second operand then.
[[gnu::always_inline]] inline Vec clamp(Vec x, Vec least, Vec most) {
  return _mm256_min_ps(most, _mm256_max_ps(least, x));
}

// Cephes' expf: x = n ln 2 + r, a polynomial for e^r, 2^n into the exponent. Relative error below 2e-7; 0 and infinity
// beyond the range of floats. https://www.netlib.org/cephes/
[[gnu::always_inline]] inline Vec exp(Vec x) {
  const Vec limited = clamp(x, vec(-104.0f), vec(88.7228394f));
  const Vec n =
      _mm256_round_ps(_mm256_mul_ps(limited, vec(1.44269504088896341f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  Vec r = fma(n, vec(-0.693359375f), limited);
  r = fma(n, vec(2.12194440e-4f), r);
  Vec p = vec(1.9875691500e-4f);
  p = fma(p, r, vec(1.3981999507e-3f));
  p = fma(p, r, vec(8.3334519073e-3f));
  p = fma(p, r, vec(4.1665795894e-2f));
  p = fma(p, r, vec(1.6666665459e-1f));
  p = fma(p, r, vec(5.0000001201e-1f));
  p = fma(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, vec(1.0f)));
  // In two halves, since 2^n alone may be no float.
  const __m256i whole = _mm256_cvtps_epi32(n), first = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const Vec a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const Vec b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, first), bias), 23));
  p = _mm256_mul_ps(_mm256_mul_ps(p, a), b);
  const Vec above = _mm256_cmp_ps(x, vec(88.7228394f), _CMP_GT_OQ);
  return _mm256_blendv_ps(p, vec(__builtin_inff()), above);
}

[[gnu::always_inline]] inline Vec sigmoid(Vec x) {
  return _mm256_div_ps(vec(1.0f), _mm256_add_ps(vec(1.0f), exp(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

// x P(x^2) / Q(x^2), minimax on the range beyond which the result is +-1: Eigen's coefficients (MathFunctionsImpl.h).
[[gnu::always_inline]] inline Vec tanh(Vec x) {
  x = clamp(x, vec(-7.90531110763549805f), vec(7.90531110763549805f));
  const Vec s = _mm256_mul_ps(x, x);
  Vec p = vec(-2.76076847742355e-16f);
  p = fma(p, s, vec(2.00018790482477e-13f));
  p = fma(p, s, vec(-8.60467152213735e-11f));
  p = fma(p, s, vec(5.12229709037114e-08f));
  p = fma(p, s, vec(1.48572235717979e-05f));
  p = fma(p, s, vec(6.37261928875436e-04f));
  p = fma(p, s, vec(4.89352455891786e-03f));
  Vec q = vec(1.19825839466702e-06f);
  q = fma(q, s, vec(1.18534705686654e-04f));
  q = fma(q, s, vec(2.26843463243900e-03f));
  q = fma(q, s, vec(4.89352518554385e-03f));
  return _mm256_div_ps(_mm256_mul_ps(x, p), q);
}

[[gnu::always_inline]] inline Vec erf(Vec x) {
  x = clamp(x, vec(-4.0f), vec(4.0f));
  const Vec s = _mm256_mul_ps(x, x);
  Vec p = vec(-2.72614225801306e-10f);
  p = fma(p, s, vec(2.77068142495902e-08f));
  p = fma(p, s, vec(-2.10102402082508e-06f));
  p = fma(p, s, vec(-5.69250639462346e-05f));
  p = fma(p, s, vec(-7.34990630326855e-04f));
  p = fma(p, s, vec(-2.95459980854025e-03f));
  p = fma(p, s, vec(-1.60960333262415e-02f));
  Vec q = vec(-1.45660718464996e-05f);
  q = fma(q, s, vec(-2.13374055278905e-04f));
  q = fma(q, s, vec(-1.68282697438203e-03f));
  q = fma(q, s, vec(-7.37332916720468e-03f));
  q = fma(q, s, vec(-1.42647390514189e-02f));
  return _mm256_div_ps(_mm256_mul_ps(x, p), q);
}

// The activation is known outside of loops, so that the branch costs little beside what it chooses.
[[gnu::always_inline]] inline Vec activate(ActivationKind kind, Vec alpha, Vec beta, Vec x) {
  const Vec zero = _mm256_setzero_ps(), one = vec(1.0f);
  switch (kind) {
    case ActivationKind::kRelu:
      return _mm256_max_ps(zero, x);
    case ActivationKind::kLeakyRelu:
      return _mm256_blendv_ps(x, _mm256_mul_ps(x, alpha), x);
    case ActivationKind::kClip:
      return clamp(x, alpha, beta);
    case ActivationKind::kElu:
      return _mm256_blendv_ps(x, _mm256_mul_ps(alpha, _mm256_sub_ps(exp(x), one)), x);
    case ActivationKind::kSigmoid:
      return sigmoid(x);
    case ActivationKind::kHardSigmoid:
      return clamp(fma(alpha, x, beta), zero, one);
    case ActivationKind::kHardSwish:
      return _mm256_mul_ps(x, clamp(fma(alpha, x, beta), zero, one));
    case ActivationKind::kSilu:
      return _mm256_mul_ps(x, sigmoid(x));
    case ActivationKind::kGelu:
      return _mm256_mul_ps(_mm256_mul_ps(vec(0.5f), x),
                           _mm256_add_ps(one, erf(_mm256_mul_ps(x, vec(0.707106781186547524f)))));
    case ActivationKind::kGeluTanh: {
      const Vec cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
      const Vec inner = _mm256_mul_ps(vec(0.797884560802865356f), fma(cube, vec(0.044715f), x));
      return _mm256_mul_ps(_mm256_mul_ps(vec(0.5f), x), _mm256_add_ps(one, tanh(inner)));
    }
    case ActivationKind::kTanh:
      return tanh(x);
    case ActivationKind::kNone:
      break;
  }
  return x;
}

}  // namespace sluice::engine::cpu
SLUICE_AVX2_END
