// Depthwise convolution of blocked tensors: eight channels at a time, a row of output pixels after the other.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/blocked_conv.h"
#include "cpu/parallel.h"
#include "cpu/simd.h"
#include "operators/packed_weights.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {
namespace {

constexpr int kMostAtOnce = 8;

struct Row {
  const float* x;  // of the first tap of the first pixel
  std::int64_t x_pixel, taps_y, taps_x, tap_y, tap_x;
  const float* w;
  std::int64_t w_row;  // from a row of taps to the next
  const float* bias;   // 8 of them
  float* y;
};

template <int kPixels>
void run(const Row& row) {
  Vec sum[kPixels];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
    sum[p] = load(row.bias);
  }
  for (std::int64_t ty = 0; ty < row.taps_y; ++ty) {
    const float* x = row.x + ty * row.tap_y;
    const float* w = row.w + ty * row.w_row;
    for (std::int64_t tx = 0; tx < row.taps_x; ++tx, x += row.tap_x, w += 8) {
      const Vec weight = load(w);
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) {
        sum[p] = fma(load(x + p * row.x_pixel), weight, sum[p]);
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
    store(row.y + p * 8, sum[p]);
  }
}

void run(const Row& row, int pixels) {
  switch (pixels) {
    case 1:
      return run<1>(row);
    case 2:
      return run<2>(row);
    case 3:
      return run<3>(row);
    case 4:
      return run<4>(row);
    case 5:
      return run<5>(row);
    case 6:
      return run<6>(row);
    case 7:
      return run<7>(row);
    default:
      return run<8>(row);
  }
}

template <ActivationKind kKind>
void finish_row(const Activation& activation, float* y, const float* residual, std::int64_t pixels) {
  const Vec alpha = vec(activation.alpha), beta = vec(activation.beta);
  for (std::int64_t i = 0; i < pixels * 8; i += 8) {
    const Vec value = residual == nullptr ? load(y + i) : _mm256_add_ps(load(y + i), load(residual + i));
    store(y + i, activate(kKind, alpha, beta, value));
  }
}

void finish_row(const Activation& activation, float* y, const float* residual, std::int64_t pixels) {
  switch (activation.kind) {
    case ActivationKind::kNone:
      return residual == nullptr ? void() : finish_row<ActivationKind::kNone>(activation, y, residual, pixels);
    case ActivationKind::kRelu:
      return finish_row<ActivationKind::kRelu>(activation, y, residual, pixels);
    case ActivationKind::kLeakyRelu:
      return finish_row<ActivationKind::kLeakyRelu>(activation, y, residual, pixels);
    case ActivationKind::kClip:
      return finish_row<ActivationKind::kClip>(activation, y, residual, pixels);
    case ActivationKind::kElu:
      return finish_row<ActivationKind::kElu>(activation, y, residual, pixels);
    case ActivationKind::kSigmoid:
      return finish_row<ActivationKind::kSigmoid>(activation, y, residual, pixels);
    case ActivationKind::kHardSigmoid:
      return finish_row<ActivationKind::kHardSigmoid>(activation, y, residual, pixels);
    case ActivationKind::kHardSwish:
      return finish_row<ActivationKind::kHardSwish>(activation, y, residual, pixels);
    case ActivationKind::kSilu:
      return finish_row<ActivationKind::kSilu>(activation, y, residual, pixels);
    case ActivationKind::kGelu:
      return finish_row<ActivationKind::kGelu>(activation, y, residual, pixels);
    case ActivationKind::kGeluTanh:
      return finish_row<ActivationKind::kGeluTanh>(activation, y, residual, pixels);
    case ActivationKind::kTanh:
      return finish_row<ActivationKind::kTanh>(activation, y, residual, pixels);
  }
}

}  // namespace
}  // namespace sluice::engine::cpu
SLUICE_AVX2_END

namespace sluice::engine::cpu {
namespace {

class Depthwise final : public Kernel {
 public:
  Depthwise(const ConvShape& shape, const Activation& activation, int threads, std::shared_ptr<const void> weights,
            std::vector<float> bias)
      : s_(shape), activation_(activation), threads_(threads), weights_(std::move(weights)), bias_(std::move(bias)) {
    bias_.resize(static_cast<std::size_t>((shape.channels + 7) / 8 * 8), 0.0f);
  }

  bool may_overwrite(std::size_t input) const override { return input == 3; }

  Status run(const KernelRun& run) override {
    const float* residual = run.inputs.size() > 3 && run.inputs[3].present() ? run.inputs[3].as<float>() : nullptr;
    const std::int64_t blocks = s_.channels / 8;
    parallel_for(threads_, s_.n * blocks, [&](std::int64_t task, int) {
      plane(run.inputs[0].as<float>() + task * s_.h * s_.w * 8, task % blocks,
            run.outputs[0].out<float>() + task * s_.oh * s_.ow * 8,
            residual == nullptr ? nullptr : residual + task * s_.oh * s_.ow * 8);
    });
    return {};
  }

 private:
  // The taps [first, last) of a window at `start` that lie in [0, size).
  static std::pair<std::int64_t, std::int64_t> taps(std::int64_t start, std::int64_t dilation, std::int64_t count,
                                                    std::int64_t size) {
    const std::int64_t first = start < 0 ? std::min(count, (-start + dilation - 1) / dilation) : 0;
    const std::int64_t last = start >= size ? 0 : std::min(count, (size - 1 - start) / dilation + 1);
    return {first, std::max(first, last)};
  }

  void plane(const float* x, std::int64_t block, float* y, const float* residual) const {
    // Output columns whose windows lie inside of the input's columns.
    const std::int64_t from = std::min(s_.ow, (s_.left + s_.stride_w - 1) / s_.stride_w);
    const std::int64_t room = s_.w - 1 + s_.left - (s_.kw - 1) * s_.dilation_w;
    const std::int64_t to = std::max(from, std::min(s_.ow, room < 0 ? 0 : room / s_.stride_w + 1));
    Row row;
    row.x_pixel = s_.stride_w * 8;
    row.tap_y = s_.dilation_h * s_.w * 8;
    row.tap_x = s_.dilation_w * 8;
    row.w_row = s_.kw * 8;
    row.bias = bias_.data() + block * 8;
    const float* weights = static_cast<const float*>(weights_.get()) + block * s_.kh * s_.kw * 8;
    for (std::int64_t oh = 0; oh < s_.oh; ++oh) {
      const std::int64_t ih = oh * s_.stride_h - s_.top;
      const auto [first, last] = taps(ih, s_.dilation_h, s_.kh, s_.h);
      row.taps_y = last - first;
      const float* in = x + (ih + first * s_.dilation_h) * s_.w * 8;
      const float* w = weights + first * row.w_row;
      float* out = y + oh * s_.ow * 8;
      const auto edge = [&](std::int64_t ow) {
        const std::int64_t iw = ow * s_.stride_w - s_.left;
        const auto [left, right] = taps(iw, s_.dilation_w, s_.kw, s_.w);
        row.x = in + (iw + left * s_.dilation_w) * 8;
        row.w = w + left * 8;
        row.taps_x = right - left;
        row.y = out + ow * 8;
        cpu::run(row, 1);
      };
      for (std::int64_t ow = 0; ow < from; ++ow) {
        edge(ow);
      }
      row.taps_x = s_.kw;
      row.w = w;
      for (std::int64_t ow = from; ow < to; ow += kMostAtOnce) {
        row.x = in + (ow * s_.stride_w - s_.left) * 8;
        row.y = out + ow * 8;
        cpu::run(row, static_cast<int>(std::min<std::int64_t>(kMostAtOnce, to - ow)));
      }
      for (std::int64_t ow = to; ow < s_.ow; ++ow) {
        edge(ow);
      }
      finish_row(activation_, out, residual == nullptr ? nullptr : residual + oh * s_.ow * 8, s_.ow);
    }
  }

  const ConvShape s_;
  const Activation activation_;
  const int threads_;
  const std::shared_ptr<const void> weights_;
  std::vector<float> bias_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> make_depthwise(KernelContext& context, const ConvShape& shape) {
  const Tensor* weights = context.constant(1);
  auto packed = context.packed_weights()->get(*weights, "depthwise:8", [&] {
    const std::int64_t taps = shape.kh * shape.kw;
    auto memory = allocate_floats(static_cast<std::size_t>(shape.channels * taps));
    for (std::int64_t c = 0; c < shape.channels && memory.ok(); ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        std::memcpy(memory->get() + (c / 8 * taps + t) * 8 + c % 8, weights->data() + (c * taps + t) * 4, 4);
      }
    }
    return memory.ok() ? Result<std::shared_ptr<const void>>(*memory) : memory.status();
  });
  if (!packed.ok()) {
    return packed.status();
  }
  context.release_input(1);
  context.release_input(2);
  return Result<std::unique_ptr<Kernel>>(
      std::make_unique<Depthwise>(shape, activation_of(context.node()), context.threads(), *packed,
                                  padded_bias(context.has_input(2) ? context.constant(2) : nullptr, shape.channels)));
}

}  // namespace sluice::engine::cpu
