// Conv.
#include "operators/convolve.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status infer_conv(ShapeContext& context) {
  auto shape = conv_shape(context.node(), context.dims(0), context.dims(1));
  if (!shape.ok()) {
    return shape.status();
  }
  const std::int64_t filters = context.dims(1)[0];
  if (context.has_input(2) && context.dims(2) != Dims{filters}) {
    return context.error(Code::kInvalidArgument, "a bias of shape %s for %lld filters",
                         to_string(context.dims(2)).c_str(), static_cast<long long>(filters));
  }
  Dims dims = {context.dims(0)[0], filters};
  dims.insert(dims.end(), shape->window.out.begin(), shape->window.out.end());
  return context.set(0, std::move(dims));
}

template <class T>
Result<std::unique_ptr<Kernel>> conv_kernel(ConvShape shape) {
  using A = ComputeType<T>;
  const auto scratch = static_cast<std::size_t>(shape.row()) * sizeof(A);
  return make_kernel(
      [shape = std::move(shape)](const KernelRun& run) {
        const T* bias = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<T>() : nullptr;
        T* y = run.outputs[0].out<T>();
        const std::int64_t length = shape.row();
        convolve(
            shape, run.inputs[0].as<T>(), run.inputs[1].as<T>(), reinterpret_cast<A*>(run.scratch),
            [](T value) { return static_cast<A>(value); }, [](T value, std::int64_t) { return static_cast<A>(value); },
            [&](std::int64_t m, std::int64_t offset, const A* row) {
              const A shift = bias != nullptr ? static_cast<A>(bias[m]) : A{0};
              for (std::int64_t i = 0; i < length; ++i) {
                y[offset + i] = static_cast<T>(row[i] + shift);
              }
            });
      },
      scratch);
}

Result<std::unique_ptr<Kernel>> make_conv(KernelContext& context) {
  auto shape = conv_shape(context.node(), context.input(0).dims, context.input(1).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return dispatch_floats(context.input(0).dtype,
                         [&](auto tag) { return conv_kernel<typename decltype(tag)::type>(std::move(*shape)); });
}

}  // namespace

Result<ConvShape> conv_shape(const Node& node, const Dims& x, const Dims& w) {
  const auto wrong = [&](const char* what) {
    return Status::error(Code::kInvalidArgument, "%s: %s, with an input %s and weights %s", describe(node).c_str(),
                         what, to_string(x).c_str(), to_string(w).c_str());
  };
  ConvShape shape;
  shape.groups = node.get_int("group", 1);
  if (x.size() < 3 || w.size() != x.size()) {
    return wrong("the shapes have too few dimensions, or not as many");
  }
  if (shape.groups < 1 || w[0] % shape.groups != 0 || x[1] % shape.groups != 0 || x[1] / shape.groups != w[1]) {
    return wrong("the channels do not match");
  }
  if (node.has("kernel_shape") && node.get_ints("kernel_shape") != spatial(w)) {
    return wrong("kernel_shape is another one");
  }
  auto window = window_of(node, spatial(x), spatial(w));
  if (!window.ok()) {
    return window.status();
  }
  shape.window = std::move(*window);
  shape.batch = x[0];
  shape.channels = w[1];
  shape.filters = w[0] / shape.groups;
  return shape;
}

void register_convolution(Registry& registry) {
  registry.add({.op = "Conv",
                .inputs = "X:T, W:T, B:T?",
                .outputs = "Y:T",
                .attributes = "auto_pad:string, dilations:ints, group:int, kernel_shape:ints, pads:ints, strides:ints",
                .types = {{"T", kFloats}},
                .infer = infer_conv,
                .kernel = make_conv});
}

}  // namespace sluice::engine
