#include "cpu/winograd_transform.h"

#include "cpu/simd.h"

namespace sluice::engine::cpu {
namespace {

constexpr double kA = 2.0 / 3, kB = 3.0 / 2;  // kA * kB = 1, which saves two factors
constexpr double kA2 = kA * kA, kB2 = kB * kB;

// Three numbers to six: the polynomial's values at the points, over the points' Lagrange factors.
void weights_1d(const double* w, std::int64_t w_step, double* u, std::int64_t u_step) {
  const double even_a = (w[0] + kA2 * w[2 * w_step]) / (2 * kA2 * (kA2 - kB2)), odd_a = kA * w[w_step];
  const double even_b = (w[0] + kB2 * w[2 * w_step]) / (2 * kB2 * (kB2 - kA2)), odd_b = kB * w[w_step];
  const double scaled_a = odd_a / (2 * kA2 * (kA2 - kB2)), scaled_b = odd_b / (2 * kB2 * (kB2 - kA2));
  u[0] = w[0];
  u[u_step] = even_a + scaled_a;
  u[2 * u_step] = even_a - scaled_a;
  u[3 * u_step] = even_b + scaled_b;
  u[4 * u_step] = even_b - scaled_b;
  u[5 * u_step] = w[2 * w_step];
}

}  // namespace

void winograd_weights(const float* w, float* positions) {
  double in[9], rows[3 * kWinogradIn], out[kWinogradPositions];
  for (int i = 0; i < 9; ++i) {
    in[i] = static_cast<double>(w[i]);
  }
  for (int r = 0; r < 3; ++r) {
    weights_1d(in + 3 * r, 1, rows + kWinogradIn * r, 1);
  }
  for (int c = 0; c < kWinogradIn; ++c) {
    weights_1d(rows + c, kWinogradIn, out + c, kWinogradIn);
  }
  for (int i = 0; i < kWinogradPositions; ++i) {
    positions[i] = static_cast<float>(out[i]);
  }
}

}  // namespace sluice::engine::cpu

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {
namespace {

[[gnu::always_inline]] inline Vec constant(double x) { return vec(static_cast<float>(x)); }

// Six to six: the products of (x - point) over all other points.
[[gnu::always_inline]] inline void input_1d(const Vec (&d)[kWinogradIn], Vec (&v)[kWinogradIn]) {
  const Vec sum = constant(-(kA2 + kB2)), a = constant(kA), b = constant(kB);
  const Vec even_a = fma(constant(-kB2), d[2], d[4]), odd_a = fma(constant(-kB2), d[1], d[3]);
  const Vec even_b = fma(constant(-kA2), d[2], d[4]), odd_b = fma(constant(-kA2), d[1], d[3]);
  v[0] = fma(sum, d[2], _mm256_add_ps(d[0], d[4]));
  v[1] = fma(a, odd_a, even_a);
  v[2] = _mm256_fnmadd_ps(a, odd_a, even_a);
  v[3] = fma(b, odd_b, even_b);
  v[4] = _mm256_fnmadd_ps(b, odd_b, even_b);
  v[5] = fma(sum, d[3], _mm256_add_ps(d[1], d[5]));
}

// Six to four: sums weighted by the points' powers.
[[gnu::always_inline]] inline void output_1d(const Vec (&m)[kWinogradIn], Vec (&y)[kWinogradOut]) {
  const Vec even_a = _mm256_add_ps(m[1], m[2]), odd_a = _mm256_sub_ps(m[1], m[2]);
  const Vec even_b = _mm256_add_ps(m[3], m[4]), odd_b = _mm256_sub_ps(m[3], m[4]);
  y[0] = _mm256_add_ps(m[0], _mm256_add_ps(even_a, even_b));
  y[1] = fma(constant(kA), odd_a, _mm256_mul_ps(constant(kB), odd_b));
  y[2] = fma(constant(kA2), even_a, _mm256_mul_ps(constant(kB2), even_b));
  y[3] = fma(constant(kA2 * kA), odd_a, fma(constant(kB2 * kB), odd_b, m[5]));
}

}  // namespace

void winograd_input(const float* x, std::int64_t x_row, float* v, std::int64_t stride) {
  Vec rows[kWinogradIn][kWinogradIn];
#pragma GCC unroll 6
  for (int r = 0; r < kWinogradIn; ++r) {
    Vec d[kWinogradIn];
#pragma GCC unroll 6
    for (int c = 0; c < kWinogradIn; ++c) {
      d[c] = load(x + r * x_row + c * 8);
    }
    input_1d(d, rows[r]);
  }
#pragma GCC unroll 6
  for (int c = 0; c < kWinogradIn; ++c) {
    Vec d[kWinogradIn], out[kWinogradIn];
#pragma GCC unroll 6
    for (int r = 0; r < kWinogradIn; ++r) {
      d[r] = rows[r][c];
    }
    input_1d(d, out);
#pragma GCC unroll 6
    for (int r = 0; r < kWinogradIn; ++r) {
      store(v + (r * kWinogradIn + c) * stride, out[r]);
    }
  }
}

void winograd_output(const float* m, std::int64_t stride, const float* bias, float* y) {
  Vec rows[kWinogradIn][kWinogradOut];
#pragma GCC unroll 6
  for (int r = 0; r < kWinogradIn; ++r) {
    Vec in[kWinogradIn];
#pragma GCC unroll 6
    for (int c = 0; c < kWinogradIn; ++c) {
      in[c] = load(m + (r * kWinogradIn + c) * stride);
    }
    output_1d(in, rows[r]);
  }
  const Vec add = bias == nullptr ? _mm256_setzero_ps() : load(bias);
#pragma GCC unroll 4
  for (int c = 0; c < kWinogradOut; ++c) {
    Vec in[kWinogradIn], out[kWinogradOut];
#pragma GCC unroll 6
    for (int r = 0; r < kWinogradIn; ++r) {
      in[r] = rows[r][c];
    }
    output_1d(in, out);
#pragma GCC unroll 4
    for (int r = 0; r < kWinogradOut; ++r) {
      store(y + (r * kWinogradOut + c) * 8, _mm256_add_ps(out[r], add));
    }
  }
}

}  // namespace sluice::engine::cpu
SLUICE_AVX2_END
