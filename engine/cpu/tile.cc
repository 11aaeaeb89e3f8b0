#include "cpu/tile.h"

#include <utility>

#include "cpu/simd.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {
namespace {

// x[k + p * stride] in all lanes, `base` being x and every third pixel's address after it. Written out, because the
// compiler would keep an address a pixel and k, has too few registers for them, and reloads them all the time.
template <int kPixel, int kK>
[[gnu::always_inline]] inline Vec broadcast(const float* const* base, std::int64_t stride_bytes) {
  Vec value;
  if constexpr (kPixel % 3 == 0) {
    asm("vbroadcastss %c2(%1), %0" : "=x"(value) : "r"(base[kPixel / 3]), "i"(4 * kK));
  } else if constexpr (kPixel % 3 == 1) {
    asm("vbroadcastss %c2(%1,%3), %0" : "=x"(value) : "r"(base[kPixel / 3]), "i"(4 * kK), "r"(stride_bytes));
  } else {
    asm("vbroadcastss %c2(%1,%3,2), %0" : "=x"(value) : "r"(base[kPixel / 3]), "i"(4 * kK), "r"(stride_bytes));
  }
  return value;
}

template <int kPixels, int kBlocks, int kK, int... kPixel>
[[gnu::always_inline]] inline void step(Vec (&sum)[kPixels][kBlocks], const float* const* base,
                                        std::int64_t stride_bytes, const float* w,
                                        std::integer_sequence<int, kPixel...>) {
  const Vec w0 = load(w + kK * kPanel), w1 = kBlocks == 2 ? load(w + kK * kPanel + 8) : w0;
  (
      [&]() __attribute__((always_inline)) {
        const Vec value = broadcast<kPixel, kK>(base, stride_bytes);
        sum[kPixel][0] = fma(value, w0, sum[kPixel][0]);
        if constexpr (kBlocks == 2) {
          sum[kPixel][1] = fma(value, w1, sum[kPixel][1]);
        }
      }(),
      ...);
}

template <int kPixels, int kBlocks, int... kK>
[[gnu::always_inline]] inline void steps(Vec (&sum)[kPixels][kBlocks], const float* x, std::int64_t x_pixel,
                                         const float* w, std::integer_sequence<int, kK...>) {
  const float* const base[4] = {x, x + 3 * x_pixel, x + 6 * x_pixel, x + 9 * x_pixel};
  (step<kPixels, kBlocks, kK>(sum, base, 4 * x_pixel, w, std::make_integer_sequence<int, kPixels>()), ...);
}

// Sums to results. The activation is chosen outside of the loop; most are too long to be unrolled.
template <ActivationKind kKind>
void finish(const Tile& tile, const float* sums, int pixels) {
  const Vec scale = vec(tile.scale), alpha = vec(tile.activation.alpha), beta = vec(tile.activation.beta);
  for (int b = 0; b < 2; ++b) {
    const std::int64_t left = tile.columns - 8 * b;
    if (left <= 0) {
      break;
    }
    const Vec bias = tile.bias != nullptr ? load(tile.bias + 8 * b) : _mm256_setzero_ps();
    for (int p = 0; p < pixels; ++p) {
      const std::int64_t at = p * tile.y_pixel + b * tile.y_block;
      Vec value =
          fma(load(sums + p * kPanel + 8 * b), scale, tile.pixel_bias == nullptr ? bias : vec(tile.pixel_bias[p]));
      if (tile.residual != nullptr) {
        value = _mm256_add_ps(value, left >= 8 ? load(tile.residual + at) : load_some(tile.residual + at, left));
      }
      value = activate(kKind, alpha, beta, value);
      if (left >= 8) {
        store(tile.y + at, value);
      } else {
        store_some(tile.y + at, value, left);
      }
    }
  }
}

void finish(const Tile& tile, const float* sums, int pixels) {
  switch (tile.activation.kind) {
    case ActivationKind::kNone:
      return finish<ActivationKind::kNone>(tile, sums, pixels);
    case ActivationKind::kRelu:
      return finish<ActivationKind::kRelu>(tile, sums, pixels);
    case ActivationKind::kLeakyRelu:
      return finish<ActivationKind::kLeakyRelu>(tile, sums, pixels);
    case ActivationKind::kClip:
      return finish<ActivationKind::kClip>(tile, sums, pixels);
    case ActivationKind::kElu:
      return finish<ActivationKind::kElu>(tile, sums, pixels);
    case ActivationKind::kSigmoid:
      return finish<ActivationKind::kSigmoid>(tile, sums, pixels);
    case ActivationKind::kHardSigmoid:
      return finish<ActivationKind::kHardSigmoid>(tile, sums, pixels);
    case ActivationKind::kHardSwish:
      return finish<ActivationKind::kHardSwish>(tile, sums, pixels);
    case ActivationKind::kSilu:
      return finish<ActivationKind::kSilu>(tile, sums, pixels);
    case ActivationKind::kGelu:
      return finish<ActivationKind::kGelu>(tile, sums, pixels);
    case ActivationKind::kGeluTanh:
      return finish<ActivationKind::kGeluTanh>(tile, sums, pixels);
    case ActivationKind::kTanh:
      return finish<ActivationKind::kTanh>(tile, sums, pixels);
  }
}

// What is short enough to be unrolled, and common.
bool finishes_in_registers(ActivationKind kind) {
  return kind == ActivationKind::kNone || kind == ActivationKind::kRelu || kind == ActivationKind::kClip ||
         kind == ActivationKind::kHardSwish;
}

// f(sum, p, b) for all of them.
template <int kPixels, int kBlocks, class F>
[[gnu::always_inline]] inline void for_each_sum(Vec (&sum)[kPixels][kBlocks], F f) {
#pragma GCC unroll 12
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      f(sum[p][b], p, b);
    }
  }
}

template <int kPixels, int kBlocks>
[[gnu::always_inline]] inline void finish_in_registers(const Tile& tile, Vec (&sum)[kPixels][kBlocks]) {
  const auto at = [&](int p, int b) __attribute__((always_inline)) { return p * tile.y_pixel + b * tile.y_block; };
  if (tile.pixel_bias != nullptr) {
    for_each_sum(
        sum, [&](Vec & s, int p, int)
                 __attribute__((always_inline)) { s = _mm256_add_ps(s, vec(tile.pixel_bias[p])); });
  } else if (tile.bias != nullptr) {
    const Vec bias[2] = {load(tile.bias), load(tile.bias + 8 * (kBlocks - 1))};
    for_each_sum(
        sum, [&](Vec & s, int, int b) __attribute__((always_inline)) { s = _mm256_add_ps(s, bias[b]); });
  }
  if (tile.residual != nullptr) {
    for_each_sum(
        sum, [&](Vec & s, int p, int b)
                 __attribute__((always_inline)) { s = _mm256_add_ps(s, load(tile.residual + at(p, b))); });
  }
  const ActivationKind kind = tile.activation.kind;
  if (kind == ActivationKind::kHardSwish) {
    const Vec alpha = vec(tile.activation.alpha), beta = vec(tile.activation.beta);
    for_each_sum(
        sum, [&](Vec & s, int, int)
                 __attribute__((always_inline)) { s = activate(ActivationKind::kHardSwish, alpha, beta, s); });
  } else if (kind != ActivationKind::kNone) {
    const bool relu = kind == ActivationKind::kRelu;
    const Vec least = vec(relu ? 0.0f : tile.activation.alpha);
    const Vec most = vec(relu ? __builtin_inff() : tile.activation.beta);
    for_each_sum(
        sum, [&](Vec & s, int, int) __attribute__((always_inline)) { s = clamp(s, least, most); });
  }
  for_each_sum(
      sum, [&](Vec & s, int p, int b) __attribute__((always_inline)) { store(tile.y + at(p, b), s); });
}

template <int kPixels, int kBlocks>
void run(const Tile& tile) {
  Vec sum[kPixels][kBlocks];
#pragma GCC unroll 12
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      sum[p][b] = _mm256_setzero_ps();
    }
  }
  const float* w = tile.w;
  const std::int64_t x_pixel = tile.x_pixel;
  for (std::int64_t ty = 0; ty < tile.taps_y; ++ty) {
    const float* group = tile.x + ty * tile.tap_y;
    for (std::int64_t g = 0; g < tile.groups; ++g, group += tile.x_group) {
      const float* x = group;
      for (std::int64_t tx = 0; tx < tile.taps_x; ++tx, x += tile.tap_x, w += 8 * kPanel) {
        steps<kPixels, kBlocks>(sum, x, x_pixel, w, std::make_integer_sequence<int, 8>());
      }
    }
    for (std::int64_t k = 0; k < tile.rest; ++k, w += kPanel) {
      steps<kPixels, kBlocks>(sum, group + k, x_pixel, w, std::make_integer_sequence<int, 1>());
    }
  }
  if (finishes_in_registers(tile.activation.kind) && tile.scale == 1 && tile.columns == 8 * kBlocks) {
    finish_in_registers(tile, sum);
    return;
  }
  alignas(32) float sums[kPixels * kPanel];
#pragma GCC unroll 12
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      store(sums + p * kPanel + 8 * b, sum[p][b]);
    }
  }
  finish(tile, sums, kPixels);
}

// By the number of pixels.
template <int kBlocks, int... kPixels>
void choose(const Tile& tile, int pixels, std::integer_sequence<int, kPixels...>) {
  using Run = void (*)(const Tile&);
  static constexpr Run kRuns[] = {run<kPixels + 1, kBlocks>...};
  kRuns[pixels - 1](tile);
}

}  // namespace

void run_tile(const Tile& tile, int pixels) {
  if (tile.columns > kPanel / 2) {
    choose<2>(tile, pixels, std::make_integer_sequence<int, kMostPixels>());
  } else {
    choose<1>(tile, pixels, std::make_integer_sequence<int, 2 * kMostPixels>());
  }
}

void run_tiles(Tile tile, std::int64_t pixels) {
  const std::int64_t most = tile.columns > kPanel / 2 ? kMostPixels : 2 * kMostPixels;
  const std::int64_t tiles = (pixels + most - 1) / most;
  for (std::int64_t i = 0; i < tiles; ++i) {  // as evenly as it goes: small tiles wait for their sums
    const std::int64_t first = pixels * i / tiles, count = pixels * (i + 1) / tiles - first;
    for (std::int64_t f = tile.next_floats * i / tiles; f < tile.next_floats * (i + 1) / tiles; f += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(tile.next + f), _MM_HINT_T1);
    }
    run_tile(tile, static_cast<int>(count));
    tile.x += count * tile.x_pixel;
    tile.y += count * tile.y_pixel;
    tile.pixel_bias = tile.pixel_bias == nullptr ? nullptr : tile.pixel_bias + count;
    tile.residual = tile.residual == nullptr ? nullptr : tile.residual + count * tile.y_pixel;
  }
}

}  // namespace sluice::engine::cpu
SLUICE_AVX2_END
