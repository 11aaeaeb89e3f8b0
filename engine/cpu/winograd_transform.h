// Winograd's F(4 x 4, 3 x 3): 16 results of a 3 x 3 window from 36 products a channel in place of 144.
//
// The interpolation points are 0, +-2/3, +-3/2 and infinity. They keep the even and odd powers apart as the usual 0,
// +-1, +-2 do, and lose half as much: in FP32 twice the error of a direct convolution, where those lose four times.
#pragma once

#include <cstdint>

namespace sluice::engine::cpu {

inline constexpr int kWinogradOut = 4;  // rows and columns of results in a tile
inline constexpr int kWinogradIn = 6;   // of what they are computed from
inline constexpr int kWinogradPositions = kWinogradIn * kWinogradIn;

// The positions of one filter [3][3] of one channel.
void winograd_weights(const float* w, float* positions);

// Eight channels of an input tile: x[row * x_row + column * 8 + channel] to v[position * stride + channel].
// REQUIRES: has_avx2().
void winograd_input(const float* x, std::int64_t x_row, float* v, std::int64_t stride);

// Eight channels of a tile of results: m[position * stride + channel] plus bias[channel] (nullptr: none) to
// y[4][4][8]. REQUIRES: has_avx2().
void winograd_output(const float* m, std::int64_t stride, const float* bias, float* y);

}  // namespace sluice::engine::cpu
