// Transposed convolutions: a product of matrices gives what each input pixel adds to the output, sixteen pixels and all
// taps of some filters at a time, and that is then added where it belongs. Where windows do not overlap, tasks are
// strips of the input; else each has filters of its own, so that no two add to the same place.
#include "operators/conv_transpose.h"

#include <algorithm>
#include <cstring>

#include "cpu/avx2.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"

namespace sluice::engine::cpu {
namespace {

class ConvTranspose final : public Kernel {
 public:
  ConvTranspose(TransposeShape shape, int threads) : s_(std::move(shape)), threads_(threads) {
    const Window& w = s_.window;
    taps_ = element_count(w.kernel);
    x_image_ = element_count(w.out);
    y_image_ = element_count(w.in);
    panels_ = (x_image_ + kPanel - 1) / kPanel;
    bool disjoint = true;
    for (std::size_t d = 0; d < w.rank(); ++d) {
      disjoint = disjoint && (w.kernel[d] - 1) * w.dilations[d] < w.strides[d];
    }
    const std::int64_t wanted = threads_ == 1 ? 1 : 4 * threads_;
    strips_ = disjoint ? std::min(panels_, wanted) : 1;
    splits_ = std::min(s_.filters, std::max<std::int64_t>(1, wanted / (s_.batch * s_.groups * strips_)));
    const std::int64_t most = (s_.filters + splits_ - 1) / splits_;
    weight_floats_ = s_.groups * s_.filters * taps_ * s_.channels;
    buffer_floats_ = (s_.channels + most * taps_) * kPanel;
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(weight_floats_ + threads_ * buffer_floats_) * sizeof(float);
  }

  Status run(const KernelRun& run) override {
    const float* x = run.inputs[0].as<float>();
    const float* bias = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<float>() : nullptr;
    float* y = run.outputs[0].out<float>();
    float* weights = reinterpret_cast<float*>(run.scratch);
    const std::int64_t filters = s_.groups * s_.filters;
    parallel_ranges(threads_, s_.batch * filters, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        std::fill_n(y + i * y_image_, y_image_, bias == nullptr ? 0.0f : bias[i % filters]);
      }
    });
    turn(run.inputs[1].as<float>(), weights);
    parallel_for(threads_, s_.batch * s_.groups * strips_ * splits_, [&](std::int64_t task, int thread) {
      const std::int64_t split = task % splits_, strip = task / splits_ % strips_, item = task / splits_ / strips_;
      const std::int64_t filter = s_.filters * split / splits_, count = s_.filters * (split + 1) / splits_ - filter;
      float* packed = weights + weight_floats_ + thread * buffer_floats_;
      float* sums = packed + s_.channels * kPanel;
      Tile tile;
      tile.x = weights + (item % s_.groups * s_.filters + filter) * taps_ * s_.channels;
      tile.x_pixel = s_.channels;
      tile.x_group = 8;
      tile.groups = s_.channels / 8;
      tile.rest = s_.channels % 8;
      tile.w = packed;
      tile.y = sums;
      tile.y_pixel = kPanel;
      tile.y_block = 8;
      for (std::int64_t panel = panels_ * strip / strips_; panel < panels_ * (strip + 1) / strips_; ++panel) {
        const std::int64_t first = panel * kPanel, pixels = std::min<std::int64_t>(kPanel, x_image_ - first);
        for (std::int64_t c = 0; c < s_.channels; ++c) {
          std::memcpy(packed + c * kPanel, x + (item * s_.channels + c) * x_image_ + first,
                      static_cast<std::size_t>(pixels) * sizeof(float));
          std::fill(packed + c * kPanel + pixels, packed + (c + 1) * kPanel, 0.0f);
        }
        run_tiles(tile, count * taps_);
        add(sums, first, pixels, count, y + (item * s_.filters + filter) * y_image_);
      }
    });
    return {};
  }

 private:
  // [channel][filter][tap] of each group to [filter][tap][channel].
  void turn(const float* w, float* weights) const {
    const std::int64_t rows = s_.filters * taps_;
    for (std::int64_t g = 0; g < s_.groups; ++g, w += rows * s_.channels, weights += rows * s_.channels) {
      for (std::int64_t c = 0; c < s_.channels; ++c) {
        for (std::int64_t r = 0; r < rows; ++r) {
          weights[r * s_.channels + c] = w[c * rows + r];
        }
      }
    }
  }

  // sums [filter][tap][kPanel] of the input pixels from `first` on to the filters' output images.
  void add(const float* sums, std::int64_t first, std::int64_t pixels, std::int64_t filters, float* y) const {
    const Window& w = s_.window;
    const bool flat = w.rank() == 1;
    const std::int64_t width = w.out.back(), kw = w.kernel.back();
    for (std::int64_t tap = 0; tap < taps_; ++tap, sums += kPanel) {
      std::int64_t offsets[kPanel];
      for (std::int64_t j = 0; j < pixels; ++j) {
        const std::int64_t row = flat ? 0 : w.position(0, (first + j) / width, tap / kw);
        const std::int64_t column = w.position(w.rank() - 1, (first + j) % width, tap % kw);
        const bool inside = w.inside(w.rank() - 1, column) && (flat || w.inside(0, row));
        offsets[j] = inside ? row * w.in.back() + column : -1;
      }
      for (std::int64_t m = 0; m < filters; ++m) {
        const float* from = sums + m * taps_ * kPanel;
        float* image = y + m * y_image_;
        for (std::int64_t j = 0; j < pixels; ++j) {
          if (offsets[j] >= 0) {
            image[offsets[j]] += from[j];
          }
        }
      }
    }
  }

  const TransposeShape s_;
  const int threads_;
  std::int64_t taps_ = 1, x_image_ = 1, y_image_ = 1, panels_ = 1, strips_ = 1, splits_ = 1;
  std::int64_t weight_floats_ = 0, buffer_floats_ = 0;
};

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const Dims& x = context.input(0).dims;
  if (!has_avx2() || context.output(0).dtype != DType::kFloat || x.size() < 3 || x.size() > 4 ||
      element_count(x) == 0 || element_count(context.output(0).dims) == 0) {
    return std::unique_ptr<Kernel>();
  }
  auto shape = transpose_shape(context.node(), x, context.input(1).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return Result<std::unique_ptr<Kernel>>(std::make_unique<ConvTranspose>(std::move(*shape), context.threads()));
}

}  // namespace

void register_cpu_conv_transpose(Kernels& kernels) { kernels.add("", "ConvTranspose", "avx2", make); }

}  // namespace sluice::engine::cpu
