// The inner loop of convolutions and matrix products: a tile of `pixels` x `blocks` * 8 results.
//
//   y[p][j] = activation(scale * sum over taps t, k of x[p][t][k] * w[t][k][j] + bias[j] + residual[p][j])
//
// A pixel is an output position of a convolution or a row of a matrix; a tap is a position of the kernel's window; k
// runs over input channels or the inner dimension in groups of 8 that need not be neighbours; j over a panel of 16
// output channels or columns, in two blocks that need not be neighbours.
#pragma once

#include <cstdint>

#include "operators/activation.h"

namespace sluice::engine::cpu {

inline constexpr int kMostPixels = 6;  // with two blocks 12 of 16 registers accumulate
inline constexpr int kPanel = 16;

// Strides in floats.
struct Tile {
  const float* x = nullptr;
  std::int64_t x_pixel = 0;  // from one pixel to the next
  std::int64_t x_group = 0;  // from 8 values of k to the next 8
  std::int64_t groups = 0;   // whole groups of 8
  std::int64_t rest = 0;     // values of k after them, with taps_x = 1 only
  std::int64_t taps_y = 1, taps_x = 1, tap_y = 0, tap_x = 0;
  const float* w = nullptr;  // [taps_y]([groups][taps_x][8][kPanel], [rest][kPanel])
  float* y = nullptr;
  std::int64_t y_pixel = 0, y_block = 0;
  std::int64_t columns = kPanel;      // results that are stored of each pixel's kPanel
  const float* bias = nullptr;        // kPanel of them; nullptr: none
  const float* pixel_bias = nullptr;  // one a pixel, in place of `bias`; nullptr: none
  const float* residual = nullptr;    // lies as y does; nullptr: none
  float scale = 1;
  Activation activation;
  const float* next = nullptr;  // weights that are wanted after these: run_tiles() fetches them towards the cache
  std::int64_t next_floats = 0;
};

// 1 <= pixels <= kMostPixels, twice as many where columns <= kPanel / 2. REQUIRES: has_avx2().
void run_tile(const Tile& tile, int pixels);

// All of `pixels` in tiles, from those of tile.x, tile.y and tile.residual on.
void run_tiles(Tile tile, std::int64_t pixels);

}  // namespace sluice::engine::cpu
