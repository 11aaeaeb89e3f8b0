// The plain convolution that Conv, ConvInteger and QLinearConv share.
#pragma once

#include <algorithm>

#include "operators/window.h"

namespace sluice::engine {

struct ConvShape {
  Window window;
  std::int64_t batch = 0;
  std::int64_t groups = 0;
  std::int64_t channels = 0;  // of the input, in one group
  std::int64_t filters = 0;   // of the output, in one group

  std::int64_t row() const { return window.out.back(); }
};

// Checks x [N, C, ...] and w [M, C / group, ...] against the node. Errors: kInvalidArgument, and those of window_of.
Result<ConvShape> conv_shape(const Node& node, const Dims& x, const Dims& w);

// One output row at a time: for each, `row` (shape.row() elements) takes the sums in type A, then emit(m, offset, row)
// is called with the filter and the offset of the row in the output. take_x(value) and take_w(value, m) convert to A.
template <class A, class X, class W, class TakeX, class TakeW, class Emit>
void convolve(const ConvShape& shape, const X* x, const W* w, A* row, TakeX take_x, TakeW take_w, Emit emit) {
  const Window& window = shape.window;
  const std::size_t last = window.rank() - 1;
  const std::int64_t width = window.in[last], out_width = window.out[last], stride = window.strides[last];
  const std::int64_t image = element_count(window.in), kernel = element_count(window.kernel);
  const std::int64_t out_image = element_count(window.out);
  if (image == 0 || out_image == 0) {
    return;
  }
  for (std::int64_t nm = 0; nm < shape.batch * shape.groups * shape.filters; ++nm) {
    const std::int64_t m = nm % (shape.groups * shape.filters), n = nm / (shape.groups * shape.filters);
    const X* images = x + (n * shape.groups + m / shape.filters) * shape.channels * image;
    const W* filter = w + m * shape.channels * kernel;
    std::int64_t o[kMaxRank] = {};
    for (std::int64_t offset = nm * out_image;; offset += out_width) {
      std::fill_n(row, out_width, A{});
      std::int64_t k[kMaxRank] = {};
      for (std::int64_t tap = 0;; tap += window.kernel[last]) {
        std::int64_t line = 0;
        bool inside = true;
        for (std::size_t d = 0; d < last && inside; ++d) {
          const std::int64_t position = window.position(d, o[d], k[d]);
          inside = window.inside(d, position);
          line = (line + position) * window.in[d + 1];
        }
        for (std::int64_t kx = 0; inside && kx < window.kernel[last]; ++kx) {
          const std::int64_t first = window.position(last, 0, kx);
          const std::int64_t lo = first < 0 ? (-first + stride - 1) / stride : 0;
          const std::int64_t hi = first < width ? std::min(out_width, (width - 1 - first) / stride + 1) : 0;
          for (std::int64_t c = 0; c < shape.channels; ++c) {
            const A weight = take_w(filter[c * kernel + tap + kx], m);
            const X* in = images + c * image + line;
            if (stride == 1) {
              for (std::int64_t i = lo; i < hi; ++i) {
                row[i] += weight * take_x(in[i + first]);
              }
            } else {
              for (std::int64_t i = lo; i < hi; ++i) {
                row[i] += weight * take_x(in[i * stride + first]);
              }
            }
          }
        }
        if (!next_index(k, window.kernel, last)) {
          break;
        }
      }
      emit(m, offset, static_cast<const A*>(row));
      if (!next_index(o, window.out, last)) {
        break;
      }
    }
  }
}

}  // namespace sluice::engine
