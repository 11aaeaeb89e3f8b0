// MaxPool, AveragePool and their global forms.
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/nan.h"
#include "operators/registry.h"
#include "operators/window.h"

namespace sluice::engine {
namespace {

constexpr int kParts = 8;  // maxima that do not wait for one another

Result<Window> pool_window(const Node& node, const Dims& x) {
  auto window = window_of(node, spatial(x), node.get_ints("kernel_shape"));
  if (!window.ok() || node.get_int("count_include_pad", 0) != 0) {
    return window;
  }
  for (std::size_t d = 0; d < window->rank(); ++d) {
    for (std::int64_t o = 0; o < window->out[d]; ++o) {
      // The first element that is not before the input; the others lie further behind.
      const std::int64_t start = window->position(d, o, 0), step = window->dilations[d];
      const std::int64_t k = start < 0 ? (-start + step - 1) / step : 0;
      if (k >= window->kernel[d] || !window->inside(d, window->position(d, o, k))) {
        return refuse(node, "a window that lies in the padding only", "export the model with less padding");
      }
    }
  }
  return window;
}

Status infer_pool(ShapeContext& context) {
  auto window = pool_window(context.node(), context.dims(0));
  if (!window.ok()) {
    return window.status();
  }
  Dims dims = {context.dims(0)[0], context.dims(0)[1]};
  dims.insert(dims.end(), window->out.begin(), window->out.end());
  if (Status status = context.set(0, dims); !status.ok()) {
    return status;
  }
  return context.set(1, std::move(dims));
}

template <class T>
void max_pool(const Window& window, std::int64_t images, bool column_major, const KernelRun& run) {
  const T* x = run.inputs[0].as<T>();
  T* y = run.outputs[0].out<T>();
  std::int64_t* indices = nullptr;
  if (run.outputs.size() > 1 && run.outputs[1].present()) {
    indices = run.outputs[1].out<std::int64_t>();
  }
  for_each_window(window, images, [&](std::int64_t image, std::int64_t index, const std::int64_t* o) {
    std::int64_t best = -1, best_index = 0;
    for_each_element(window, o, [&](const std::int64_t* position, std::int64_t offset) {
      if (best >= 0 && !(static_cast<ComputeType<T>>(x[image + offset]) > static_cast<ComputeType<T>>(x[best])) &&
          (!is_nan(x[image + offset]) || is_nan(x[best]))) {
        return;
      }
      if (best >= 0 && is_nan(x[best])) {
        return;
      }
      best = image + offset;
      best_index = best;
      if (column_major) {
        best_index = 0;
        for (std::size_t d = window.rank(); d-- > 0;) {
          best_index = best_index * window.in[d] + position[d];
        }
        best_index += image;
      }
    });
    y[index] = x[best];
    if (indices != nullptr) {
      indices[index] = best_index;
    }
  });
}

Result<std::unique_ptr<Kernel>> max_pool_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  auto window = pool_window(context.node(), dims);
  if (!window.ok()) {
    return window.status();
  }
  const std::int64_t images = dims[0] * dims[1];
  const bool column_major = context.node().get_int("storage_order", 0) != 0;
  const auto make = [&](auto tag) {
    return make_kernel([window = std::move(*window), images, column_major](const KernelRun& run) {
      max_pool<typename decltype(tag)::type>(window, images, column_major, run);
    });
  };
  switch (context.input(0).dtype) {
    case DType::kInt8:
      return make(TypeTag<std::int8_t>{});
    case DType::kUint8:
      return make(TypeTag<std::uint8_t>{});
    default:
      return dispatch_floats(context.input(0).dtype, make);
  }
}

// Elements of the window at `o` that count: with padding, those up to the padded end.
std::int64_t divisor(const Window& window, const std::int64_t* o, bool include_pad) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < window.rank(); ++d) {
    std::int64_t along = 0;
    for (std::int64_t k = 0; k < window.kernel[d]; ++k) {
      const std::int64_t position = window.position(d, o[d], k);
      along += include_pad ? position < window.in[d] + window.end[d] : window.inside(d, position);
    }
    count *= along;
  }
  return count;
}

Result<std::unique_ptr<Kernel>> average_pool_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  auto window = pool_window(context.node(), dims);
  if (!window.ok()) {
    return window.status();
  }
  const std::int64_t images = dims[0] * dims[1];
  const bool include_pad = context.node().get_int("count_include_pad", 0) != 0;
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([window = std::move(*window), images, include_pad](const KernelRun& run) {
      using A = ComputeType<T>;
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for_each_window(window, images, [&](std::int64_t image, std::int64_t index, const std::int64_t* o) {
        A sum{};
        for_each_element(window, o, [&](const std::int64_t*, std::int64_t offset) { sum += x[image + offset]; });
        y[index] = static_cast<T>(sum / static_cast<A>(divisor(window, o, include_pad)));
      });
    });
  });
}

// ---- global ----

Status infer_global(ShapeContext& context) {
  Dims dims = context.dims(0);
  if (dims.size() < 2) {
    return context.error(Code::kInvalidArgument, "%s has no channels", to_string(dims).c_str());
  }
  if (element_count(spatial(dims)) == 0) {
    return context.error(Code::kInvalidArgument, "%s has nothing to pool", to_string(dims).c_str());
  }
  std::fill(dims.begin() + 2, dims.end(), 1);
  return context.set(0, std::move(dims));
}

template <bool average>
Result<std::unique_ptr<Kernel>> global_kernel(KernelContext& context) {
  const std::int64_t images = element_count(context.output(0).dims);
  const std::int64_t image = element_count(spatial(context.input(0).dims));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([images, image](const KernelRun& run) {
      using A = ComputeType<T>;
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t n = 0; n < images; ++n, x += image) {
        double sum = 0;
        A max = static_cast<A>(x[0]);
        if constexpr (average) {
          for (std::int64_t i = 0; i < image; ++i) {
            sum += static_cast<double>(static_cast<A>(x[i]));
          }
        } else {
          const auto larger = [](A a, A b) { return b > a || is_nan(b) ? b : a; };
          A parts[kParts];
          std::fill_n(parts, kParts, max);
          std::int64_t i = 0;
          for (; i + kParts <= image; i += kParts) {
            for (int part = 0; part < kParts; ++part) {
              parts[part] = larger(parts[part], static_cast<A>(x[i + part]));
            }
          }
          for (; i < image; ++i) {
            max = larger(max, static_cast<A>(x[i]));
          }
          max = std::accumulate(std::begin(parts), std::end(parts), max, larger);
        }
        y[n] = static_cast<T>(average ? static_cast<A>(sum / static_cast<double>(image)) : max);
      }
    });
  });
}

}  // namespace

void register_pooling(Registry& registry) {
  const auto max = [&](int first, int last, const char* attributes, TypeSet types) {
    registry.add({.op = "MaxPool",
                  .first = first,
                  .last = last,
                  .inputs = "X:T",
                  .outputs = first < 8 ? "Y:T" : "Y:T, Indices:I?",
                  .attributes = attributes,
                  .types = {{"T", types}, {"I", kInt64s}},
                  .infer = infer_pool,
                  .kernel = max_pool_kernel});
  };
  max(7, 7, "auto_pad:string, kernel_shape:ints!, pads:ints, strides:ints", kFloats);
  max(8, 9, "auto_pad:string, kernel_shape:ints!, pads:ints, storage_order:int, strides:ints", kFloats);
  max(10, 17,
      "auto_pad:string, ceil_mode:int, dilations:ints, kernel_shape:ints!, pads:ints, storage_order:int, strides:ints",
      kFloats | types_of({DType::kInt8, DType::kUint8}));
  const auto average = [&](int first, int last, const char* attributes) {
    registry.add({.op = "AveragePool",
                  .first = first,
                  .last = last,
                  .inputs = "X:T",
                  .outputs = "Y:T",
                  .attributes = attributes,
                  .types = {{"T", kFloats}},
                  .infer = infer_pool,
                  .kernel = average_pool_kernel});
  };
  average(7, 9, "auto_pad:string, count_include_pad:int, kernel_shape:ints!, pads:ints, strides:ints");
  average(10, 17, "auto_pad:string, ceil_mode:int, count_include_pad:int, kernel_shape:ints!, pads:ints, strides:ints");
  const auto global = [&](const char* op, MakeKernel kernel) {
    registry.add({.op = op,
                  .inputs = "X:T",
                  .outputs = "Y:T",
                  .types = {{"T", kFloats}},
                  .infer = infer_global,
                  .kernel = kernel});
  };
  global("GlobalAveragePool", global_kernel<true>);
  global("GlobalMaxPool", global_kernel<false>);
}

}  // namespace sluice::engine
