// Convolutions of tensors in rows, which the pass `layout` leaves so: one spatial dimension, groups, or channels that
// are no multiple of 8. The weights are a matrix [filters, channels * taps] as they are; sixteen output pixels' windows
// side by side are a panel, and a tile's pixels are filters, so that results come out in rows.
#include <algorithm>
#include <cstring>

#include "cpu/avx2.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"
#include "operators/convolve.h"

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kSecondLevelFloats = 40 << 10;  // of panels that a task packs: a part of 512 KiB
constexpr std::int64_t kWorthThreads = 1 << 16;        // multiply-adds below which one thread does it

class PlainConv final : public Kernel {
 public:
  PlainConv(engine::ConvShape shape, const Activation& activation, int threads)
      : s_(std::move(shape)), activation_(activation), threads_(threads) {
    const Window& window = s_.window;
    taps_ = element_count(window.kernel);
    depth_ = s_.channels * taps_;
    pixels_ = element_count(window.out);
    image_ = element_count(window.in);
    const std::int64_t panels = (pixels_ + kPanel - 1) / kPanel, items = s_.batch * s_.groups;
    if (items * pixels_ * s_.filters * depth_ < kWorthThreads) {
      threads_ = 1;
    }
    const std::int64_t wanted = threads_ == 1 ? 1 : 4 * threads_;
    const std::int64_t fit = std::max<std::int64_t>(1, kSecondLevelFloats / (depth_ * kPanel));
    strips_ = std::min(panels, std::max((panels + fit - 1) / fit, (wanted + items - 1) / items));
    const std::int64_t sixes = (s_.filters + kMostPixels - 1) / kMostPixels;
    splits_ = std::min(sixes, std::max<std::int64_t>(1, wanted / (items * strips_)));
    buffer_floats_ = (panels + strips_ - 1) / strips_ * depth_ * kPanel;
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(threads_ * buffer_floats_) * sizeof(float);
  }

  bool may_overwrite(std::size_t input) const override { return input == 3; }

  Status run(const KernelRun& run) override {
    const float* x = run.inputs[0].as<float>();
    const float* bias = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<float>() : nullptr;
    const float* residual = run.inputs.size() > 3 && run.inputs[3].present() ? run.inputs[3].as<float>() : nullptr;
    float* y = run.outputs[0].out<float>();
    const std::int64_t panels = (pixels_ + kPanel - 1) / kPanel;
    parallel_for(threads_, s_.batch * s_.groups * strips_ * splits_, [&](std::int64_t task, int thread) {
      const std::int64_t split = task % splits_, strip = task / splits_ % strips_, item = task / splits_ / strips_;
      const std::int64_t filter = s_.filters * split / splits_, count = s_.filters * (split + 1) / splits_ - filter;
      float* packed = reinterpret_cast<float*>(run.scratch) + thread * buffer_floats_;
      Tile tile;
      tile.x = run.inputs[1].as<float>() + (item % s_.groups * s_.filters + filter) * depth_;
      tile.pixel_bias = bias == nullptr ? nullptr : bias + item % s_.groups * s_.filters + filter;
      tile.x_pixel = depth_;
      tile.x_group = 8;
      tile.groups = depth_ / 8;
      tile.rest = depth_ % 8;
      tile.y_pixel = pixels_;
      tile.y_block = 8;
      tile.activation = activation_;
      for (std::int64_t panel = panels * strip / strips_; panel < panels * (strip + 1) / strips_;
           ++panel, packed += depth_ * kPanel) {
        tile.columns = std::min<std::int64_t>(kPanel, pixels_ - panel * kPanel);
        pack(x + item * s_.channels * image_, panel * kPanel, tile.columns, packed);
        const std::int64_t at = (item * s_.filters + filter) * pixels_ + panel * kPanel;
        tile.w = packed;
        tile.y = y + at;
        tile.residual = residual == nullptr ? nullptr : residual + at;
        run_tiles(tile, count);
      }
    });
    return {};
  }

 private:
  // The windows of `count` output pixels: [channel][tap][kPanel].
  void pack(const float* x, std::int64_t first, std::int64_t count, float* packed) const {
    const Window& w = s_.window;
    const bool flat = w.rank() == 1;
    const std::int64_t width = w.out.back(), kw = w.kernel.back(), kh = flat ? 1 : w.kernel[0];
    for (std::int64_t ky = 0; ky < kh; ++ky) {
      for (std::int64_t kx = 0; kx < kw; ++kx) {
        std::int64_t offsets[kPanel];
        bool all = count == kPanel;  // sixteen neighbours, none of them padding
        for (std::int64_t j = 0; j < count; ++j) {
          const std::int64_t row = flat ? 0 : w.position(0, (first + j) / width, ky);
          const std::int64_t column = w.position(w.rank() - 1, (first + j) % width, kx);
          const bool inside = w.inside(w.rank() - 1, column) && (flat || w.inside(0, row));
          offsets[j] = inside ? row * w.in.back() + column : -1;
          all = all && inside && offsets[j] == offsets[0] + j;
        }
        float* out = packed + (ky * kw + kx) * kPanel;
        for (std::int64_t c = 0; c < s_.channels; ++c, out += taps_ * kPanel) {
          const float* plane = x + c * image_;
          if (all) {
            std::memcpy(out, plane + offsets[0], kPanel * sizeof(float));
            continue;
          }
          for (std::int64_t j = 0; j < kPanel; ++j) {
            out[j] = j < count && offsets[j] >= 0 ? plane[offsets[j]] : 0;
          }
        }
      }
    }
  }

  const engine::ConvShape s_;
  const Activation activation_;
  int threads_;
  std::int64_t taps_ = 1, depth_ = 1, pixels_ = 1, image_ = 1, strips_ = 1, splits_ = 1, buffer_floats_ = 0;
};

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const std::size_t rank = context.input(0).dims.size();
  if (!has_avx2() || context.output(0).dtype != DType::kFloat || rank < 3 || rank > 4 ||
      element_count(context.output(0).dims) == 0 || element_count(context.input(0).dims) == 0) {
    return std::unique_ptr<Kernel>();
  }
  auto shape = engine::conv_shape(context.node(), context.input(0).dims, context.input(1).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return Result<std::unique_ptr<Kernel>>(
      std::make_unique<PlainConv>(std::move(*shape), activation_of(context.node()), context.threads()));
}

}  // namespace

void register_cpu_plain_conv(Kernels& kernels) {
  kernels.add("", "Conv", "avx2", make);
  kernels.add(kOwnDomain, "FusedConv", "avx2", make);
}

}  // namespace sluice::engine::cpu
