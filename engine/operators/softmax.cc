// Softmax, LogSoftmax and Hardmax. Until opset 12 all dimensions from `axis` on are one; since 13 only `axis` is.
#include <cmath>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

bool flattens(const Node& node) { return node.opset < 13; }

std::int64_t axis_of(const Node& node) { return node.get_int("axis", flattens(node) ? 1 : -1); }

Status infer_softmax(ShapeContext& context) {
  if (auto axis = context.axis(axis_of(context.node()), context.rank(0)); !axis.ok()) {
    return axis.status();
  }
  return context.set(0, context.dims(0));
}

enum class Form { kSoftmax, kLogSoftmax, kHardmax };

template <Form form, class T>
void one_line(const T* x, T* y, std::int64_t length, std::int64_t step) {
  using A = ComputeType<T>;
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < length; ++i) {
    best = static_cast<A>(x[i * step]) > static_cast<A>(x[best * step]) ? i : best;
  }
  if constexpr (form == Form::kHardmax) {
    for (std::int64_t i = 0; i < length; ++i) {
      y[i * step] = static_cast<T>(i == best ? A{1} : A{0});
    }
  } else {
    const A max = static_cast<A>(x[best * step]);
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      sum += static_cast<double>(std::exp(static_cast<A>(x[i * step]) - max));
    }
    const A log_sum = static_cast<A>(std::log(sum)), scale = static_cast<A>(1 / sum);
    for (std::int64_t i = 0; i < length; ++i) {
      const A shifted = static_cast<A>(x[i * step]) - max;
      y[i * step] = static_cast<T>(form == Form::kSoftmax ? std::exp(shifted) * scale : shifted - log_sum);
    }
  }
}

template <Form form>
Result<std::unique_ptr<Kernel>> softmax_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  std::int64_t axis = axis_of(context.node());
  axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
  const std::int64_t outer = element_count(Dims(dims.begin(), dims.begin() + axis));
  const bool flat = flattens(context.node());
  const std::int64_t length =
      flat ? element_count(Dims(dims.begin() + axis, dims.end())) : dims[static_cast<std::size_t>(axis)];
  const std::int64_t inner = flat ? 1 : element_count(Dims(dims.begin() + axis + 1, dims.end()));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([outer, length, inner](const KernelRun& run) {
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t o = 0; length > 0 && o < outer; ++o) {
        for (std::int64_t i = 0; i < inner; ++i) {
          one_line<form>(x + o * length * inner + i, y + o * length * inner + i, length, inner);
        }
      }
    });
  });
}

}  // namespace

void register_softmax(Registry& registry) {
  const auto add = [&](const char* op, MakeKernel kernel) {
    registry.add({.op = op,
                  .inputs = "input:T",
                  .outputs = "output:T",
                  .attributes = "axis:int",
                  .types = {{"T", kFloats}},
                  .infer = infer_softmax,
                  .kernel = kernel});
  };
  add("Softmax", softmax_kernel<Form::kSoftmax>);
  add("LogSoftmax", softmax_kernel<Form::kLogSoftmax>);
  add("Hardmax", softmax_kernel<Form::kHardmax>);
}

}  // namespace sluice::engine
