// What the convolution kernels for blocked tensors share: BlockedConv's shape.
#pragma once

#include <cstdint>

#include "operators/schema.h"

namespace sluice::engine::cpu {

// X [n, channels / 8, h, w, 8], or [n, channels, h, w] where `plain`; Y [n, out / 8, oh, ow, 8].
struct ConvShape {
  bool plain = false;
  std::int64_t n = 0, channels = 0, h = 0, w = 0, out = 0, oh = 0, ow = 0;
  std::int64_t kh = 0, kw = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, top = 0, left = 0;
};

ConvShape conv_shape(const KernelContext& context);

// `count` floats that start on a cache line. Errors: kResourceExhausted.
Result<std::shared_ptr<float>> allocate_floats(std::size_t count);

// An optional constant [count] as floats, followed by zeros to a multiple of 16; empty if it is not there.
std::vector<float> padded_bias(const Tensor* tensor, std::int64_t count);

Result<std::unique_ptr<Kernel>> make_depthwise(KernelContext& context, const ConvShape& shape);
// REQUIRES: 3 x 3, stride 1, dilation 1, not plain.
Result<std::unique_ptr<Kernel>> make_winograd(KernelContext& context, const ConvShape& shape);

}  // namespace sluice::engine::cpu
