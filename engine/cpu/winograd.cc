// Convolutions of 3 x 3 with stride 1 of blocked tensors, by Winograd's algorithm: tiles of the input are transformed
// to 36 positions, each position is a product of matrices over the channels, and tiles of results are transformed back.
//
// Where there are many tiles, a task takes some of them through all three steps in its second-level cache. Where there
// are few, as beside many channels, all are transformed first, and a task takes some panels of output channels.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/blocked_conv.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"
#include "cpu/vector_steps.h"
#include "cpu/winograd_transform.h"
#include "operators/packed_weights.h"

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kPrivateFloats = 64 << 10;  // of transformed input in a task's second-level cache
constexpr std::int64_t kSharedTiles = 32;          // of a task where the transformed input is shared
constexpr std::int64_t kPanelsAtOnce = 2;          // that read a position's input while it is in the first-level cache
constexpr std::int64_t kPadding = 16;              // floats between positions, lest they meet in one cache set
constexpr std::int64_t kTileFloats = kWinogradOut * kWinogradOut * 8;
constexpr std::int64_t kPatchFloats = kWinogradPositions * 8;

class Winograd final : public Kernel {
 public:
  Winograd(const ConvShape& shape, const Activation& activation, int threads, std::shared_ptr<const void> weights,
           std::vector<float> bias)
      : s_(shape), activation_(activation), threads_(threads), weights_(std::move(weights)), bias_(std::move(bias)) {
    across_ = (s_.ow + kWinogradOut - 1) / kWinogradOut;
    down_ = (s_.oh + kWinogradOut - 1) / kWinogradOut;
    groups_ = s_.channels / 8;
    panels_ = (s_.out + kPanel - 1) / kPanel;
    const std::int64_t tiles = s_.n * down_ * across_;
    const std::int64_t fit = kPrivateFloats / (kWinogradPositions * s_.channels) / kMostPixels * kMostPixels;
    const std::int64_t wanted = threads_ == 1 ? 1 : 4 * threads_;
    shared_ = fit < 2 * kMostPixels || tiles < wanted * fit;
    const std::int64_t most = std::min(tiles, shared_ ? kSharedTiles : fit);
    chunks_ = (tiles + most - 1) / most;
    chunk_ = (tiles + chunks_ - 1) / chunks_;
    const std::int64_t pairs = (panels_ + kPanelsAtOnce - 1) / kPanelsAtOnce;
    splits_ = shared_ ? std::min(pairs, std::max<std::int64_t>(1, (2 * wanted + chunks_ - 1) / chunks_)) : 1;
    input_floats_ = kWinogradPositions * (chunk_ * s_.channels + kPadding);
    sums_floats_ = kPanelsAtOnce * kWinogradPositions * (chunk_ * kPanel + kPadding);
  }

  std::size_t scratch_bytes() const override {
    const std::int64_t inputs = shared_ ? chunks_ : threads_;
    return static_cast<std::size_t>(inputs * input_floats_ + threads_ * sums_floats_) * sizeof(float);
  }

  bool may_overwrite(std::size_t input) const override { return input == 3; }

  Status run(const KernelRun& run) override {
    const float* x = run.inputs[0].as<float>();
    const float* residual = run.inputs.size() > 3 && run.inputs[3].present() ? run.inputs[3].as<float>() : nullptr;
    float* y = run.outputs[0].out<float>();
    auto* sums = reinterpret_cast<float*>(run.scratch);
    float* inputs = sums + threads_ * sums_floats_;
    if (shared_) {
      parallel_ranges(threads_, chunks_ * groups_, 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          transform(x, i / groups_, i % groups_, inputs + i / groups_ * input_floats_);
        }
      });
    }
    parallel_for(threads_, splits_ * chunks_, [&](std::int64_t task, int thread) {
      const std::int64_t split = task / chunks_, chunk = task % chunks_;
      float* input = inputs + (shared_ ? chunk : thread) * input_floats_;
      for (std::int64_t group = 0; group < groups_ && !shared_; ++group) {
        transform(x, chunk, group, input);
      }
      multiply(input, chunk, panels_ * split / splits_, panels_ * (split + 1) / splits_, sums + thread * sums_floats_,
               y, residual);
    });
    return {};
  }

 private:
  // Of all images' tiles, the first one of a chunk.
  std::int64_t first_tile(std::int64_t chunk) const { return s_.n * down_ * across_ * chunk / chunks_; }

  struct Place {
    std::int64_t image, row, column;  // of the tile's first result
  };
  Place place(std::int64_t tile) const {
    return {tile / across_ / down_, tile / across_ % down_ * kWinogradOut, tile % across_ * kWinogradOut};
  }

  // Eight channels of a chunk's tiles to [position][group][tile][8].
  void transform(const float* x, std::int64_t chunk, std::int64_t group, float* input) const {
    const std::int64_t first = first_tile(chunk), count = first_tile(chunk + 1) - first;
    const std::int64_t stride = count * s_.channels + kPadding;
    float* out = input + group * count * 8;
    for (std::int64_t i = 0; i < count; ++i, out += 8) {
      const Place at = place(first + i);
      const std::int64_t ih = at.row - s_.top, iw = at.column - s_.left;
      const float* plane = x + (at.image * groups_ + group) * s_.h * s_.w * 8;
      if (ih >= 0 && iw >= 0 && ih + kWinogradIn <= s_.h && iw + kWinogradIn <= s_.w) {
        winograd_input(plane + (ih * s_.w + iw) * 8, s_.w * 8, out, stride);
        continue;
      }
      alignas(32) float patch[kPatchFloats] = {};
      const std::int64_t left = std::max<std::int64_t>(0, -iw), right = std::min<std::int64_t>(kWinogradIn, s_.w - iw);
      for (std::int64_t r = std::max<std::int64_t>(0, -ih); r < std::min<std::int64_t>(kWinogradIn, s_.h - ih); ++r) {
        if (left < right) {
          std::memcpy(patch + (r * kWinogradIn + left) * 8, plane + ((ih + r) * s_.w + iw + left) * 8,
                      static_cast<std::size_t>(right - left) * 8 * sizeof(float));
        }
      }
      winograd_input(patch, kWinogradIn * 8, out, stride);
    }
  }

  void multiply(const float* input, std::int64_t chunk, std::int64_t panel, std::int64_t last, float* sums, float* y,
                const float* residual) const {
    const std::int64_t count = first_tile(chunk + 1) - first_tile(chunk);
    const std::int64_t panel_floats = kWinogradPositions * s_.channels * kPanel, floats = s_.channels * kPanel;
    const std::int64_t stride = count * kPanel + kPadding;
    Tile tile;
    tile.x_pixel = 8;
    tile.x_group = count * 8;
    tile.groups = groups_;
    tile.y_pixel = kPanel;
    tile.y_block = 8;
    for (; panel < last; panel += kPanelsAtOnce) {
      const std::int64_t together = std::min(kPanelsAtOnce, last - panel);
      const float* weights = static_cast<const float*>(weights_.get()) + panel * panel_floats;
      for (std::int64_t position = 0; position < kWinogradPositions; ++position) {
        for (std::int64_t p = 0; p < together; ++p) {
          tile.x = input + position * (count * s_.channels + kPadding);
          tile.w = weights + p * panel_floats + position * floats;
          tile.y = sums + (p * kWinogradPositions + position) * stride;
          tile.columns = std::min<std::int64_t>(kPanel, s_.out - (panel + p) * kPanel);
          tile.next = tile.w + floats;
          tile.next_floats = position + 1 < kWinogradPositions ? floats : 0;
          run_tiles(tile, count);
        }
      }
      for (std::int64_t block = 2 * panel; block < std::min(2 * (panel + together), s_.out / 8); ++block) {
        const std::int64_t p = block / 2 - panel;
        finish(sums + p * kWinogradPositions * stride + block % 2 * 8, stride, chunk, block, y, residual);
      }
    }
  }

  // Eight output channels of a chunk's tiles.
  void finish(const float* sums, std::int64_t stride, std::int64_t chunk, std::int64_t block, float* y,
              const float* residual) const {
    const float* bias = bias_.empty() ? nullptr : bias_.data() + block * 8;
    for (std::int64_t tile = first_tile(chunk); tile < first_tile(chunk + 1); ++tile, sums += kPanel) {
      const Place at = place(tile);
      alignas(32) float values[kTileFloats];
      winograd_output(sums, stride, bias, values);
      const std::int64_t rows = std::min<std::int64_t>(kWinogradOut, s_.oh - at.row);
      const auto floats = static_cast<std::size_t>(std::min<std::int64_t>(kWinogradOut, s_.ow - at.column)) * 8;
      const std::int64_t to = (((at.image * s_.out / 8 + block) * s_.oh + at.row) * s_.ow + at.column) * 8;
      for (std::int64_t r = 0; r < rows && residual != nullptr; ++r) {
        add_run(residual + to + r * s_.ow * 8, values + r * kWinogradOut * 8, static_cast<std::int64_t>(floats));
      }
      activate_run(activation_, values, kTileFloats);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::memcpy(y + to + r * s_.ow * 8, values + r * kWinogradOut * 8, floats * sizeof(float));
      }
    }
  }

  const ConvShape s_;
  const Activation activation_;
  const int threads_;
  const std::shared_ptr<const void> weights_;
  const std::vector<float> bias_;
  std::int64_t across_ = 0, down_ = 0, groups_ = 0, panels_ = 0;
  std::int64_t chunks_ = 1, chunk_ = 1, splits_ = 1, input_floats_ = 0, sums_floats_ = 0;
  bool shared_ = false;
};

// [panel][position][channel][kPanel]. `w` [out, channels, 3, 3] may be unaligned.
void pack(const ConvShape& s, const std::byte* w, float* packed) {
  const std::int64_t panels = (s.out + kPanel - 1) / kPanel;
  for (std::int64_t k = 0; k < panels * kPanel; ++k) {
    for (std::int64_t c = 0; c < s.channels; ++c) {
      float filter[9] = {}, positions[kWinogradPositions];
      if (k < s.out) {
        std::memcpy(filter, w + (k * s.channels + c) * sizeof(filter), sizeof(filter));
      }
      winograd_weights(filter, positions);
      for (std::int64_t i = 0; i < kWinogradPositions; ++i) {
        packed[((k / kPanel * kWinogradPositions + i) * s.channels + c) * kPanel + k % kPanel] = positions[i];
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> make_winograd(KernelContext& context, const ConvShape& shape) {
  const Tensor* weights = context.constant(1);
  auto packed = context.packed_weights()->get(*weights, "conv:winograd:16", [&] {
    const std::int64_t panels = (shape.out + kPanel - 1) / kPanel;
    auto memory = allocate_floats(static_cast<std::size_t>(panels * kPanel * kWinogradPositions * shape.channels));
    if (memory.ok()) {
      pack(shape, weights->data(), memory->get());
    }
    return memory.ok() ? Result<std::shared_ptr<const void>>(*memory) : memory.status();
  });
  if (!packed.ok()) {
    return packed.status();
  }
  auto kernel =
      std::make_unique<Winograd>(shape, activation_of(context.node()), context.threads(), *packed,
                                 padded_bias(context.has_input(2) ? context.constant(2) : nullptr, shape.out));
  context.release_input(1);
  context.release_input(2);
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));
}

}  // namespace sluice::engine::cpu
