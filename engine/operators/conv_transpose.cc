#include "operators/conv_transpose.h"

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status wrong(const Node& node, const char* what, const Dims& x, const Dims& w) {
  return Status::error(Code::kInvalidArgument, "%s: %s, with an input %s and weights %s", describe(node).c_str(), what,
                       to_string(x).c_str(), to_string(w).c_str());
}

// Sets padding and output size of dimension d. `wanted`: the size that the model gives, or -1.
bool place(const Node& node, Window& window, std::size_t d, std::int64_t extra, std::int64_t wanted) {
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  const std::int64_t full =
      (window.out[d] - 1) * window.strides[d] + extra + (window.kernel[d] - 1) * window.dilations[d] + 1;
  if (wanted < 0 && automatic.starts_with("SAME")) {
    wanted = window.out[d] * window.strides[d];
  }
  if (wanted >= 0) {
    // An odd rest goes to the end for SAME_UPPER, to the beginning otherwise.
    const std::int64_t total = std::max<std::int64_t>(0, full - wanted);
    window.begin[d] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    window.end[d] = total - window.begin[d];
    window.in.push_back(wanted);
    return true;
  }
  window.in.push_back(full - window.begin[d] - window.end[d]);
  return window.in.back() >= 0;
}

}  // namespace

Result<TransposeShape> transpose_shape(const Node& node, const Dims& x, const Dims& w) {
  TransposeShape shape;
  shape.groups = node.get_int("group", 1);
  if (x.size() < 3 || w.size() != x.size()) {
    return wrong(node, "the shapes have too few dimensions, or not as many", x, w);
  }
  if (shape.groups < 1 || x[1] != w[0] || x[1] % shape.groups != 0) {
    return wrong(node, "the channels do not match", x, w);
  }
  if (node.has("kernel_shape") && node.get_ints("kernel_shape") != spatial(w)) {
    return wrong(node, "kernel_shape is another one", x, w);
  }
  auto window = window_attributes(node, spatial(w));
  if (!window.ok()) {
    return window.status();
  }
  shape.window = std::move(*window);
  shape.window.out = spatial(x);
  const std::size_t rank = shape.window.out.size();
  const Dims wanted = node.get_ints("output_shape", Dims(rank, -1));
  const Dims extra = node.get_ints("output_padding", Dims(rank, 0));
  if (wanted.size() != rank || extra.size() != rank) {
    return wrong(node, "output_shape or output_padding is not a number for each spatial dimension", x, w);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t limit = std::max(shape.window.strides[d], shape.window.dilations[d]);
    if (extra[d] < 0 || extra[d] >= limit || wanted[d] < -1 || (node.has("output_shape") && wanted[d] < 0) ||
        shape.window.out[d] > std::int64_t{1} << 31) {
      return wrong(node, "an output_shape or output_padding that cannot be", x, w);
    }
    if (!place(node, shape.window, d, extra[d], wanted[d])) {
      return wrong(node, "more padding than there is output", x, w);
    }
  }
  shape.batch = x[0];
  shape.channels = x[1] / shape.groups;
  shape.filters = w[1];
  return shape;
}

namespace {

Status infer(ShapeContext& context) {
  auto shape = transpose_shape(context.node(), context.dims(0), context.dims(1));
  if (!shape.ok()) {
    return shape.status();
  }
  std::int64_t filters = 0;
  if (__builtin_mul_overflow(shape->filters, shape->groups, &filters)) {
    return context.error(Code::kInvalidArgument, "too many groups");
  }
  if (context.has_input(2) && context.dims(2) != Dims{filters}) {
    return context.error(Code::kInvalidArgument, "a bias of shape %s for %lld filters",
                         to_string(context.dims(2)).c_str(), static_cast<long long>(filters));
  }
  Dims dims = {shape->batch, filters};
  dims.insert(dims.end(), shape->window.in.begin(), shape->window.in.end());
  return context.set(0, std::move(dims));
}

// Adds what one input image gives to one output image. `sums`: the output image.
template <class A, class T>
void scatter(const Window& window, const T* x, const T* w, A* sums) {
  const std::size_t last = window.rank() - 1;
  const std::int64_t stride = window.strides[last], x_width = window.out[last], y_width = window.in[last];
  std::int64_t i[kMaxRank] = {};
  for (const T* line = x;; line += x_width) {
    std::int64_t k[kMaxRank] = {};
    for (const T* taps = w;; taps += window.kernel[last]) {
      std::int64_t target = 0;
      bool inside = true;
      for (std::size_t d = 0; d < last && inside; ++d) {
        const std::int64_t position = window.position(d, i[d], k[d]);
        inside = window.inside(d, position);
        target = (target + position) * window.in[d + 1];
      }
      for (std::int64_t kx = 0; inside && kx < window.kernel[last]; ++kx) {
        const std::int64_t first = window.position(last, 0, kx);
        const std::int64_t lo = first < 0 ? (-first + stride - 1) / stride : 0;
        const std::int64_t hi = first < y_width ? std::min(x_width, (y_width - 1 - first) / stride + 1) : 0;
        const A weight = static_cast<A>(taps[kx]);
        for (std::int64_t j = lo; j < hi; ++j) {
          sums[target + first + j * stride] += weight * static_cast<A>(line[j]);
        }
      }
      if (!next_index(k, window.kernel, last)) {
        break;
      }
    }
    if (!next_index(i, window.out, last)) {
      break;
    }
  }
}

template <class T>
Result<std::unique_ptr<Kernel>> transpose_kernel(TransposeShape shape) {
  using A = ComputeType<T>;
  const std::int64_t x_image = element_count(shape.window.out), y_image = element_count(shape.window.in);
  const std::int64_t kernel = element_count(shape.window.kernel);
  return make_kernel(
      [s = std::move(shape), x_image, y_image, kernel](const KernelRun& run) {
        const T* bias = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<T>() : nullptr;
        T* y = run.outputs[0].out<T>();
        A* sums = reinterpret_cast<A*>(run.scratch);
        for (std::int64_t n = 0; n < s.batch; ++n) {
          for (std::int64_t m = 0; m < s.groups * s.filters; ++m, y += y_image) {
            std::fill_n(sums, y_image, bias != nullptr ? static_cast<A>(bias[m]) : A{0});
            const std::int64_t group = m / s.filters;
            for (std::int64_t c = 0; x_image > 0 && y_image > 0 && c < s.channels; ++c) {
              const std::int64_t channel = group * s.channels + c;
              scatter(s.window, run.inputs[0].as<T>() + (n * s.groups * s.channels + channel) * x_image,
                      run.inputs[1].as<T>() + (channel * s.filters + m % s.filters) * kernel, sums);
            }
            for (std::int64_t j = 0; j < y_image; ++j) {
              y[j] = static_cast<T>(sums[j]);
            }
          }
        }
      },
      static_cast<std::size_t>(y_image) * sizeof(A));
}

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  auto shape = transpose_shape(context.node(), context.input(0).dims, context.input(1).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return dispatch_floats(context.input(0).dtype,
                         [&](auto tag) { return transpose_kernel<typename decltype(tag)::type>(std::move(*shape)); });
}

}  // namespace

void register_conv_transpose(Registry& registry) {
  registry.add({.op = "ConvTranspose",
                .inputs = "X:T, W:T, B:T?",
                .outputs = "Y:T",
                .attributes = "auto_pad:string, dilations:ints, group:int, kernel_shape:ints, output_padding:ints, "
                              "output_shape:ints, pads:ints, strides:ints",
                .types = {{"T", kFloats}},
                .infer = infer,
                .kernel = make});
}

}  // namespace sluice::engine
