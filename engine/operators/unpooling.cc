// LpPool, GlobalLpPool and MaxUnpool.
#include <cmath>
#include <cstring>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"
#include "operators/window.h"

namespace sluice::engine {
namespace {

Status check_norm(const Node& node) {
  return node.get_int("p", 2) >= 1 ? Status() : refuse(node, "a norm p below 1", "export the model with p 1 or 2");
}

// ---- LpPool: padding counts as zeros ----

Result<Window> lp_window(const Node& node, const Dims& x) {
  return window_of(node, spatial(x), node.get_ints("kernel_shape"));
}

Status infer_lp(ShapeContext& context) {
  auto window = lp_window(context.node(), context.dims(0));
  if (!window.ok()) {
    return window.status();
  }
  Dims dims = {context.dims(0)[0], context.dims(0)[1]};
  dims.insert(dims.end(), window->out.begin(), window->out.end());
  return context.set(0, std::move(dims));
}

template <class T>
double powered(T value, std::int64_t p) {
  const double magnitude = std::fabs(static_cast<double>(static_cast<ComputeType<T>>(value)));
  return p == 1 ? magnitude : p == 2 ? magnitude * magnitude : std::pow(magnitude, static_cast<double>(p));
}

double root(double sum, std::int64_t p) {
  return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / static_cast<double>(p));
}

template <class T>
T rounded(double value) {
  return static_cast<T>(static_cast<ComputeType<T>>(value));
}

Result<std::unique_ptr<Kernel>> lp_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  auto window = lp_window(context.node(), dims);
  if (!window.ok()) {
    return window.status();
  }
  const std::int64_t images = dims[0] * dims[1], p = context.node().get_int("p", 2);
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([window = std::move(*window), images, p](const KernelRun& run) {
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for_each_window(window, images, [&](std::int64_t image, std::int64_t index, const std::int64_t* o) {
        double sum = 0;
        for_each_element(window, o,
                         [&](const std::int64_t*, std::int64_t offset) { sum += powered(x[image + offset], p); });
        y[index] = rounded<T>(root(sum, p));
      });
    });
  });
}

Status infer_global_lp(ShapeContext& context) {
  Dims dims = context.dims(0);
  if (dims.size() < 2) {
    return context.error(Code::kInvalidArgument, "%s has no channels", to_string(dims).c_str());
  }
  std::fill(dims.begin() + 2, dims.end(), 1);
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> global_lp_kernel(KernelContext& context) {
  const std::int64_t images = element_count(context.output(0).dims), p = context.node().get_int("p", 2);
  const std::int64_t image = element_count(spatial(context.input(0).dims));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      const T* x = run.inputs[0].as<T>();
      for (std::int64_t n = 0; n < images; ++n, x += image) {
        double sum = 0;
        for (std::int64_t i = 0; i < image; ++i) {
          sum += powered(x[i], p);
        }
        run.outputs[0].out<T>()[n] = rounded<T>(root(sum, p));
      }
    });
  });
}

// ---- MaxUnpool ----

// The shape that the pooled tensor had by kernel, strides and pads: what the indices count in.
Result<Dims> unpooled(const Node& node, const Dims& x) {
  auto window = window_attributes(node, node.get_ints("kernel_shape"));
  if (!window.ok()) {
    return window.status();
  }
  if (x.size() < 3 || x.size() != window->rank() + 2) {
    return Status::error(Code::kInvalidArgument, "%s: a window of %zu dimensions over %s", describe(node).c_str(),
                         window->rank(), to_string(x).c_str());
  }
  Dims dims = {x[0], x[1]};
  for (std::size_t d = 0; d < window->rank(); ++d) {
    std::int64_t size = 0;
    if (__builtin_mul_overflow(x[d + 2] - 1, window->strides[d], &size) ||
        (size += window->kernel[d] - window->begin[d] - window->end[d]) < 0) {
      return Status::error(Code::kInvalidArgument, "%s: no shape unpools to %s", describe(node).c_str(),
                           to_string(x).c_str());
    }
    dims.push_back(size);
  }
  return dims;
}

Status infer_unpool(ShapeContext& context) {
  auto dims = unpooled(context.node(), context.dims(0));
  if (!dims.ok()) {
    return dims.status();
  }
  if (context.dims(1) != context.dims(0)) {
    return context.error(Code::kInvalidArgument, "indices of shape %s for %s", to_string(context.dims(1)).c_str(),
                         to_string(context.dims(0)).c_str());
  }
  if (auto bytes = tensor_bytes(context.dtype(0), *dims); !bytes.ok()) {
    return bytes.status();
  }
  if (!context.has_input(2)) {
    return context.set(0, std::move(*dims));
  }
  const Dims pads = context.node().get_ints("pads");
  if (std::any_of(pads.begin(), pads.end(), [](std::int64_t pad) { return pad != 0; })) {
    return refuse(context.node(), "output_shape together with pads", "leave out one of them");
  }
  auto wanted = context.ints(2);
  if (!wanted.ok()) {
    return wanted.status();
  }
  if (wanted->size() != dims->size()) {
    return context.error(Code::kInvalidArgument, "output_shape %s for %s", to_string(*wanted).c_str(),
                         to_string(context.dims(0)).c_str());
  }
  return context.set(0, std::move(*wanted));
}

Result<std::unique_ptr<Kernel>> unpool_kernel(KernelContext& context) {
  const Node& node = context.node();
  auto from = unpooled(node, context.input(0).dims);
  if (!from.ok()) {
    return from.status();
  }
  const std::int64_t count = element_count(context.input(0).dims), limit = element_count(*from);
  const Dims to = context.output(0).dims;
  const auto bytes = static_cast<std::size_t>(element_count(to)) * dtype_bytes(context.output(0).dtype);
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([node, count, limit, bytes, from = std::move(*from), to](const KernelRun& run) -> Status {
      const T* x = run.inputs[0].as<T>();
      const std::int64_t* indices = run.inputs[1].as<std::int64_t>();
      if (bytes > 0) {
        std::memset(run.outputs[0].data, 0, bytes);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = indices[i], target = 0, step = 1;
        bool inside = rest >= 0 && rest < limit;
        for (std::size_t d = to.size(); inside && d-- > 0;) {
          const std::int64_t position = rest % from[d];
          rest /= from[d];
          inside = position < to[d];
          target += position * step;
          step *= to[d];
        }
        if (!inside) {
          return Status::error(Code::kInvalidArgument, "%s: index %lld lies outside the output", describe(node).c_str(),
                               static_cast<long long>(indices[i]));
        }
        run.outputs[0].out<T>()[target] = x[i];
      }
      return {};
    });
  });
}

}  // namespace

void register_unpooling(Registry& registry) {
  registry.add({.op = "LpPool",
                .inputs = "X:T",
                .outputs = "Y:T",
                .attributes = "auto_pad:string, kernel_shape:ints!, p:int, pads:ints, strides:ints",
                .types = {{"T", kFloats}},
                .infer = infer_lp,
                .kernel = lp_kernel,
                .check = check_norm});
  registry.add({.op = "GlobalLpPool",
                .inputs = "X:T",
                .outputs = "Y:T",
                .attributes = "p:int",
                .types = {{"T", kFloats}},
                .infer = infer_global_lp,
                .kernel = global_lp_kernel,
                .check = check_norm});
  registry.add({.op = "MaxUnpool",
                .first = 9,
                .inputs = "X:T, I:I, output_shape:I?",
                .outputs = "output:T",
                .attributes = "kernel_shape:ints!, pads:ints, strides:ints",
                .types = {{"T", kFloats}, {"I", kInt64s}},
                .shape_inputs = {2},
                .infer = infer_unpool,
                .kernel = unpool_kernel});
}

}  // namespace sluice::engine
