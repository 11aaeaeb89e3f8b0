// Windows that slide over the spatial dimensions of a tensor [N, C, D1, ..., Dn]: convolutions and pools.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operators/schema.h"

namespace sluice::engine {

// One number a spatial dimension.
struct Window {
  Dims in, out, kernel, strides, dilations;
  Dims begin, end;  // padding

  std::size_t rank() const { return kernel.size(); }
  // Where element `k` of the window at `o` lies in the input; outside [0, in) is padding.
  std::int64_t position(std::size_t d, std::int64_t o, std::int64_t k) const {
    return o * strides[d] - begin[d] + k * dilations[d];
  }
  bool inside(std::size_t d, std::int64_t position) const { return position >= 0 && position < in[d]; }
};

// The dimensions behind the first two.
inline Dims spatial(const Dims& dims) {
  return Dims(dims.begin() + std::min<std::ptrdiff_t>(2, std::ssize(dims)), dims.end());
}

// Reads auto_pad, ceil_mode, dilations, pads and strides of the node. `in`: spatial dimensions. With ceil_mode, a last
// window that would begin behind the input and the padding before it is left out, as ONNX's shape inference does since
// 1.16 and other runtimes do. Errors: kInvalidArgument (attributes that contradict each other or the shapes),
// kUnimplemented (auto_pad together with pads). https://onnx.ai/onnx/operators/onnx__MaxPool.html
Result<Window> window_of(const Node& node, const Dims& in, const Dims& kernel);

// strides, dilations and pads checked for `rank` spatial dimensions, defaults filled in; `in` and `out` stay empty.
// Errors: as window_of.
Result<Window> window_attributes(const Node& node, const Dims& kernel);

// Steps `index` through dims[0, rank), the last dimension fastest. Returns false after the last position, when `index`
// is all zeros again.
inline bool next_index(std::int64_t* index, const Dims& dims, std::size_t rank) {
  for (std::size_t d = rank; d-- > 0;) {
    if (++index[d] < dims[d]) {
      return true;
    }
    index[d] = 0;
  }
  return false;
}

// Calls f(image, output index, o) for each window: the offset of its channel's image in the input, its place in the
// output, and its position.
template <class F>
void for_each_window(const Window& window, std::int64_t images, F f) {
  const std::int64_t image = element_count(window.in);
  if (image == 0 || element_count(window.out) == 0) {
    return;
  }
  std::int64_t index = 0;
  for (std::int64_t n = 0; n < images; ++n) {
    std::int64_t o[kMaxRank] = {};
    do {
      f(n * image, index++, o);
    } while (next_index(o, window.out, window.rank()));
  }
}

// Calls f(position, offset in the image) for each element of the window at `o` that is not padding.
template <class F>
void for_each_element(const Window& window, const std::int64_t* o, F f) {
  std::int64_t k[kMaxRank] = {}, position[kMaxRank];
  do {
    std::int64_t offset = 0;
    bool inside = true;
    for (std::size_t d = 0; d < window.rank() && inside; ++d) {
      position[d] = window.position(d, o[d], k[d]);
      inside = window.inside(d, position[d]);
      offset = offset * window.in[d] + position[d];
    }
    if (inside) {
      f(position, offset);
    }
  } while (next_index(k, window.kernel, window.rank()));
}

}  // namespace sluice::engine
