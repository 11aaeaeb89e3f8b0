// Convolution of blocked tensors, groups = 1. Each task takes some output rows of an image and some panels of output
// channels; where windows overlap or lie on the edge, it first copies the input that its rows need, with zeros around,
// to memory of its own that stays in the second-level cache.
#include "cpu/blocked_conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/aligned_memory.h"
#include "cpu/avx2.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/tile.h"
#include "operators/packed_weights.h"

namespace sluice::engine::cpu {

ConvShape conv_shape(const KernelContext& context) {
  const Dims &x = context.input(0).dims, &w = context.input(1).dims, &y = context.output(0).dims;
  const Node& node = context.node();
  const auto strides = node.get_ints("strides", {1, 1}), dilations = node.get_ints("dilations", {1, 1});
  const auto pads = node.get_ints("pads", {0, 0, 0, 0});
  ConvShape shape;
  shape.plain = x.size() == 4;
  shape.n = x[0];
  shape.channels = shape.plain ? x[1] : 8 * x[1];
  shape.h = x[2];
  shape.w = x[3];
  shape.out = w[0];
  shape.oh = y[2];
  shape.ow = y[3];
  shape.kh = w[2];
  shape.kw = w[3];
  shape.stride_h = strides[0];
  shape.stride_w = strides[1];
  shape.dilation_h = dilations[0];
  shape.dilation_w = dilations[1];
  shape.top = pads[0];
  shape.left = pads[1];
  if (!shape.plain && shape.w == 1 && shape.ow == 1 && shape.kw == 1 && shape.left == 0) {
    std::swap(shape.h, shape.w);  // the same memory, and rows are what loops run along
    std::swap(shape.oh, shape.ow);
    std::swap(shape.kh, shape.kw);
    std::swap(shape.stride_h, shape.stride_w);
    std::swap(shape.dilation_h, shape.dilation_w);
    std::swap(shape.top, shape.left);
  }
  return shape;
}

Result<std::shared_ptr<float>> allocate_floats(std::size_t count) {
  auto memory = allocate_aligned(count * sizeof(float));
  if (memory == nullptr) {
    return Status::error(Code::kResourceExhausted, "no memory for %zu bytes of packed weights", count * sizeof(float));
  }
  return std::static_pointer_cast<float>(memory);
}

std::vector<float> padded_bias(const Tensor* tensor, std::int64_t count) {
  if (tensor == nullptr) {
    return {};
  }
  std::vector<float> bias(static_cast<std::size_t>((count + kPanel - 1) / kPanel * kPanel), 0.0f);
  std::memcpy(bias.data(), tensor->data(), static_cast<std::size_t>(count) * sizeof(float));
  return bias;
}

namespace {

constexpr std::int64_t kSecondLevelFloats = 40 << 10;  // of input that a task works on: a part of 512 KiB
constexpr std::int64_t kPanelFloats = 32 << 10;        // of weights beside it

class DenseConv final : public Kernel {
 public:
  DenseConv(const ConvShape& shape, const Activation& activation, int threads)
      : s_(shape), activation_(activation), threads_(threads) {
    panels_ = (s_.out + kPanel - 1) / kPanel;
    pointwise_ = !s_.plain && s_.kh == 1 && s_.kw == 1;
    direct_ = pointwise_ && s_.stride_h == 1 && s_.stride_w == 1 && s_.top == 0 && s_.left == 0 && s_.oh == s_.h &&
              s_.ow == s_.w;
    // Of windows of one position only the pixels that are read are copied.
    column_step_ = s_.kw == 1 ? s_.stride_w : 1;
    row_step_ = s_.kh == 1 ? s_.stride_h : 1;
    columns_ = s_.kw == 1 ? s_.ow : (s_.ow - 1) * s_.stride_w + (s_.kw - 1) * s_.dilation_w + 1;
    plan();
  }

  static std::int64_t packed_floats(const ConvShape& s) {
    return (s.out + kPanel - 1) / kPanel * kPanel * s.channels * s.kh * s.kw;
  }

  // In the order of Tile::w, a panel after the other. `w` [out, channels, kh, kw] may be unaligned.
  static void pack(const ConvShape& s, const std::byte* w, float* packed) {
    const std::int64_t groups = s.plain ? 1 : s.channels / 8, inner = s.plain ? s.channels : 8;
    for (std::int64_t first = 0; first < s.out; first += kPanel) {
      for (std::int64_t ty = 0; ty < s.kh; ++ty) {
        for (std::int64_t g = 0; g < groups; ++g) {
          for (std::int64_t tx = 0; tx < s.kw; ++tx) {
            for (std::int64_t i = 0; i < inner; ++i, packed += kPanel) {
              for (std::int64_t j = 0; j < kPanel; ++j) {
                packed[j] = 0;
                if (first + j < s.out) {
                  const std::int64_t at = ((first + j) * s.channels + g * 8 + i) * s.kh * s.kw + ty * s.kw + tx;
                  std::memcpy(packed + j, w + at * 4, 4);
                }
              }
            }
          }
        }
      }
    }
  }

  void set_weights(std::shared_ptr<const void> weights, std::vector<float> bias) {
    weights_ = std::move(weights);
    bias_ = std::move(bias);
  }

  std::size_t scratch_bytes() const override {
    return direct_ ? 0 : static_cast<std::size_t>(threads_ * buffer_floats_) * sizeof(float);
  }

  bool may_overwrite(std::size_t input) const override { return input == 3; }

  Status run(const KernelRun& run) override {
    const float* x = run.inputs[0].as<float>();
    const float* residual = run.inputs.size() > 3 && run.inputs[3].present() ? run.inputs[3].as<float>() : nullptr;
    parallel_for(threads_, s_.n * strips_ * splits_, [&](std::int64_t task, int thread) {
      const std::int64_t split = task / (s_.n * strips_), image = task / strips_ % s_.n, strip = task % strips_;
      const std::int64_t rows = direct_ ? s_.oh * s_.ow : s_.oh;
      const std::int64_t first = rows * strip / strips_, count = rows * (strip + 1) / strips_ - first;
      const std::int64_t panel = panels_ * split / splits_, last = panels_ * (split + 1) / splits_;
      const float* in = x + image * s_.channels * s_.h * s_.w;
      Tile tile;
      tile.activation = activation_;
      if (direct_) {
        tile.x = in + first * 8;
      } else {
        float* buffer = reinterpret_cast<float*>(run.scratch) + thread * buffer_floats_;
        tile.x = buffer;
        s_.plain ? interleave(in, first, count, buffer) : gather(in, first, count, buffer);
      }
      compute(tile, image, first, count, panel, last, run.outputs[0].out<float>(), residual);
    });
    return {};
  }

 private:
  std::int64_t rows_in(std::int64_t rows) const {
    return s_.kh == 1 ? rows : (rows - 1) * s_.stride_h + (s_.kh - 1) * s_.dilation_h + 1;
  }
  std::int64_t floats_of(std::int64_t rows) const {
    return direct_ ? rows * s_.channels : rows_in(rows) * columns_ * s_.channels;
  }

  void plan() {
    const std::int64_t rows = direct_ ? s_.oh * s_.ow : s_.oh;
    const bool heavy = packed_floats(s_) > s_.channels * s_.h * s_.w;  // weights are read once, the input often
    const std::int64_t most = heavy ? 2 * kSecondLevelFloats : kSecondLevelFloats;
    std::int64_t fit = rows;
    while (fit > 1 && floats_of(fit) > most) {
      fit = (fit + 1) / 2;
    }
    strips_ = (rows + fit - 1) / fit;
    const std::int64_t wanted = threads_ == 1 ? 1 : 4 * threads_;
    if (!heavy && s_.n * strips_ < wanted) {
      strips_ = std::min(direct_ ? (rows + kMostPixels - 1) / kMostPixels : rows, (wanted + s_.n - 1) / s_.n);
    }
    splits_ = std::min(panels_, std::max<std::int64_t>(1, wanted / (s_.n * strips_)));
    buffer_floats_ = (floats_of((rows + strips_ - 1) / strips_) + 15) / 16 * 16;
  }

  // The columns [first, last) of a buffer's row that lie in the input.
  std::pair<std::int64_t, std::int64_t> inside() const {
    const std::int64_t first = std::min(columns_, (s_.left + column_step_ - 1) / column_step_);
    const std::int64_t last = std::min(columns_, (s_.w - 1 + s_.left) / column_step_ + 1);
    return {first, std::max(first, last)};
  }

  void gather(const float* in, std::int64_t first, std::int64_t count, float* buffer) const {
    const auto [from, to] = inside();
    const std::int64_t rows = rows_in(count);
    for (std::int64_t g = 0; g < s_.channels / 8; ++g) {
      for (std::int64_t r = 0; r < rows; ++r, buffer += columns_ * 8) {
        const std::int64_t at = first * s_.stride_h - s_.top + r * row_step_;
        if (at < 0 || at >= s_.h) {
          std::memset(buffer, 0, static_cast<std::size_t>(columns_) * 32);
          continue;
        }
        std::memset(buffer, 0, static_cast<std::size_t>(from) * 32);
        const float* row = in + ((g * s_.h + at) * s_.w + from * column_step_ - s_.left) * 8;
        if (column_step_ == 1) {
          std::memcpy(buffer + from * 8, row, static_cast<std::size_t>(to - from) * 32);
        } else {
          for (std::int64_t c = from; c < to; ++c, row += column_step_ * 8) {
            std::memcpy(buffer + c * 8, row, 32);
          }
        }
        std::memset(buffer + to * 8, 0, static_cast<std::size_t>(columns_ - to) * 32);
      }
    }
  }

  // Of a plain input: [row][column][channel], so that a window's row is one run of numbers.
  void interleave(const float* in, std::int64_t first, std::int64_t count, float* buffer) const {
    const auto [from, to] = inside();
    const std::int64_t rows = rows_in(count);
    for (std::int64_t r = 0; r < rows; ++r, buffer += columns_ * s_.channels) {
      const std::int64_t at = first * s_.stride_h - s_.top + r * row_step_;
      const bool outside = at < 0 || at >= s_.h;
      if (outside || to - from < columns_) {
        std::memset(buffer, 0, static_cast<std::size_t>(columns_ * s_.channels) * sizeof(float));
      }
      for (std::int64_t c = 0; c < s_.channels && !outside; ++c) {
        const float* row = in + (c * s_.h + at) * s_.w + from * column_step_ - s_.left;
        float* out = buffer + from * s_.channels + c;
        for (std::int64_t i = from; i < to; ++i, row += column_step_, out += s_.channels) {
          *out = *row;
        }
      }
    }
  }

  void compute(Tile tile, std::int64_t image, std::int64_t first, std::int64_t count, std::int64_t panel,
               std::int64_t last, float* y, const float* residual) const {
    const std::int64_t width = s_.kw == 1 ? 1 : s_.stride_w, plane = s_.oh * s_.ow * 8;
    if (s_.plain) {
      tile.x_pixel = width * s_.channels;
      tile.x_group = 8;
      tile.groups = s_.kw * s_.channels / 8;
      tile.rest = s_.kw * s_.channels % 8;
    } else {
      tile.x_pixel = width * 8;
      tile.x_group = direct_ ? s_.h * s_.w * 8 : rows_in(count) * columns_ * 8;
      tile.groups = s_.channels / 8;
      tile.taps_x = s_.kw;
      tile.tap_x = s_.dilation_w * 8;
    }
    const std::int64_t row_floats = columns_ * (s_.plain ? s_.channels : 8);
    tile.taps_y = s_.kh;
    tile.tap_y = s_.dilation_h * row_floats;
    tile.y_pixel = 8;
    tile.y_block = plane;
    const float* weights = static_cast<const float*>(weights_.get());
    const std::int64_t panel_floats = kPanel * s_.channels * s_.kh * s_.kw;
    for (; panel < last; ++panel) {
      tile.w = weights + panel * panel_floats;
      tile.bias = bias_.empty() ? nullptr : bias_.data() + panel * kPanel;
      tile.columns = std::min<std::int64_t>(kPanel, s_.out - panel * kPanel);
      tile.next = tile.w + panel_floats;
      tile.next_floats = panel + 1 < panels_ ? panel_floats : 0;
      const std::int64_t at = (image * s_.out / 8 + panel * 2) * plane + first * (direct_ ? 8 : s_.ow * 8);
      if (direct_ || pointwise_) {
        tile.y = y + at;
        tile.residual = residual == nullptr ? nullptr : residual + at;
        run_tiles(tile, direct_ ? count : count * s_.ow);
        continue;
      }
      rows(tile, count, y + at, residual == nullptr ? nullptr : residual + at, row_floats);
    }
  }

  // A panel's results in `count` rows. Where its weights would push the input out of the second-level cache, they come
  // a row of the window at a time; the sums wait in the result meanwhile.
  void rows(const Tile& tile, std::int64_t count, float* y, const float* residual, std::int64_t row_floats) const {
    const std::int64_t panel_floats = kPanel * s_.channels * s_.kh * s_.kw;
    const std::int64_t parts = panel_floats > kPanelFloats ? s_.kh : 1, floats = panel_floats / parts;
    const std::int64_t step = (s_.kh == 1 ? 1 : s_.stride_h) * row_floats;
    for (std::int64_t part = 0; part < parts; ++part) {
      const bool last = part + 1 == parts;
      const float* add = part == 0 ? residual : y;
      for (std::int64_t r = 0; r < count; ++r) {
        Tile row = tile;
        row.taps_y = s_.kh / parts;
        row.x = tile.x + part * tile.tap_y + r * step;
        row.w = tile.w + part * floats;
        row.y = y + r * s_.ow * 8;
        row.residual = add == nullptr ? nullptr : add + r * s_.ow * 8;
        if (!last) {
          row.bias = nullptr;
          row.activation = {};
        }
        const std::int64_t ahead = last ? std::min(tile.next_floats, floats) : floats;
        row.next = row.w + floats + ahead * r / count;
        row.next_floats = ahead * (r + 1) / count - ahead * r / count;
        run_tiles(row, s_.ow);
      }
    }
  }

  const ConvShape s_;
  const Activation activation_;
  const int threads_;
  std::shared_ptr<const void> weights_;
  std::vector<float> bias_;
  std::int64_t panels_ = 0, strips_ = 1, splits_ = 1, buffer_floats_ = 0;
  std::int64_t columns_ = 0, column_step_ = 1, row_step_ = 1;
  bool pointwise_ = false, direct_ = false;
};

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const ConvShape shape = conv_shape(context);
  if (context.node().get_int("group", 1) != 1) {
    return make_depthwise(context, shape);
  }
  if (context.node().get_int("winograd", 0) != 0) {
    return make_winograd(context, shape);
  }
  const Tensor* weights = context.constant(1);
  auto kernel = std::make_unique<DenseConv>(shape, activation_of(context.node()), context.threads());
  const bool turned = shape.kw != context.input(1).dims[3];
  const char* form = shape.plain ? "conv:rows:16" : turned ? "conv:8:16:turned" : "conv:8:16";
  auto packed = context.packed_weights()->get(*weights, form, [&] {
    auto memory = allocate_floats(static_cast<std::size_t>(DenseConv::packed_floats(shape)));
    if (memory.ok()) {
      DenseConv::pack(shape, weights->data(), memory->get());
    }
    return memory.ok() ? Result<std::shared_ptr<const void>>(*memory) : memory.status();
  });
  if (!packed.ok()) {
    return packed.status();
  }
  kernel->set_weights(*packed, padded_bias(context.has_input(2) ? context.constant(2) : nullptr, shape.out));
  context.release_input(1);
  context.release_input(2);
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));
}

}  // namespace

void register_cpu_blocked_conv(Kernels& kernels) { kernels.add(kOwnDomain, "BlockedConv", "avx2", make); }

}  // namespace sluice::engine::cpu
