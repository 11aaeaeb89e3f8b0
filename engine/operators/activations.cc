// Activations that take parameters, element by element.
#include <cmath>
#include <limits>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status infer_same(ShapeContext& context) { return context.set(0, context.dims(0)); }

template <class T, class F>
Result<std::unique_ptr<Kernel>> map_kernel(const KernelContext& context, F f) {
  const std::int64_t count = element_count(context.output(0).dims);
  return make_kernel([count, f](const KernelRun& run) {
    const T* x = run.inputs[0].as<T>();
    T* y = run.outputs[0].out<T>();
    for (std::int64_t i = 0; i < count; ++i) {
      y[i] = static_cast<T>(f(static_cast<ComputeType<T>>(x[i])));
    }
  });
}

// `F`: f(x, a, b), computed in float, or double for doubles; a and b are attributes.
template <class F>
Result<std::unique_ptr<Kernel>> float_map(const KernelContext& context, float a, float b) {
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    return map_kernel<T>(context, [a = static_cast<C>(a), b = static_cast<C>(b)](C x) { return F()(x, a, b); });
  });
}

// Comparisons are such that NaN stays NaN.
#define SLUICE_ACTIVATION(name, expression) \
  struct name {                             \
    template <class T>                      \
    T operator()(T x, T a, T b) const {     \
      static_cast<void>(b);                 \
      return expression;                    \
    }                                       \
  }
SLUICE_ACTIVATION(LeakyRelu, x < T{0} ? a * x : x);
SLUICE_ACTIVATION(Elu, x < T{0} ? a * std::expm1(x) : x);
SLUICE_ACTIVATION(Selu, x > T{0} ? b * x : b * (a * std::expm1(x)));
SLUICE_ACTIVATION(Celu, x < T{0} ? a * std::expm1(x / a) : x);
SLUICE_ACTIVATION(ThresholdedRelu, x <= a ? T{0} : x);
#undef SLUICE_ACTIVATION

struct HardSigmoid {
  template <class T>
  T operator()(T x, T a, T b) const {
    const T y = a * x + b;
    return y < T{0} ? T{0} : y > T{1} ? T{1} : y;
  }
};

Result<std::unique_ptr<Kernel>> leaky_relu_kernel(KernelContext& context) {
  return float_map<LeakyRelu>(context, context.node().get_float("alpha", 0.01f), 0);
}

Result<std::unique_ptr<Kernel>> elu_kernel(KernelContext& context) {
  return float_map<Elu>(context, context.node().get_float("alpha", 1.0f), 0);
}

Result<std::unique_ptr<Kernel>> selu_kernel(KernelContext& context) {
  return float_map<Selu>(context, context.node().get_float("alpha", 1.67326319217681884765625f),
                         context.node().get_float("gamma", 1.05070102214813232421875f));
}

Result<std::unique_ptr<Kernel>> celu_kernel(KernelContext& context) {
  return float_map<Celu>(context, context.node().get_float("alpha", 1.0f), 0);
}

Result<std::unique_ptr<Kernel>> thresholded_relu_kernel(KernelContext& context) {
  return float_map<ThresholdedRelu>(context, context.node().get_float("alpha", 1.0f), 0);
}

Result<std::unique_ptr<Kernel>> hard_sigmoid_kernel(KernelContext& context) {
  return float_map<HardSigmoid>(context, context.node().get_float("alpha", 0.2f),
                                context.node().get_float("beta", 0.5f));
}

// x - bias above lambd, x + bias below -lambd, and 0 between. Integers are compared and shifted as floats are.
Result<std::unique_ptr<Kernel>> shrink_kernel(KernelContext& context) {
  const float lambda = context.node().get_float("lambd", 0.5f), bias = context.node().get_float("bias", 0.0f);
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<ComputeType<T>, float>, float, double>;
    return map_kernel<T>(context, [l = static_cast<C>(lambda), b = static_cast<C>(bias)](ComputeType<T> value) {
      const C x = static_cast<C>(value);
      const C y = x < -l ? x + b : x > l ? x - b : C{0};
      if constexpr (kIsFloating<T>) {
        return y;
      } else {
        constexpr C kLeast = static_cast<C>(std::numeric_limits<T>::lowest());
        constexpr C kMost = static_cast<C>(std::numeric_limits<T>::max());
        return y >= kMost ? std::numeric_limits<T>::max() : y > kLeast ? static_cast<T>(y) : T(kLeast);
      }
    });
  });
}

// ---- PRelu: the slope broadcasts to X, never X to the slope ----

Status infer_prelu(ShapeContext& context) {
  auto dims = broadcast_dims(context, context.dims(0), context.dims(1));
  if (!dims.ok()) {
    return dims.status();
  }
  if (*dims != context.dims(0)) {
    return context.error(Code::kInvalidArgument, "a slope of shape %s does not broadcast to %s",
                         to_string(context.dims(1)).c_str(), to_string(context.dims(0)).c_str());
  }
  return context.set(0, std::move(*dims));
}

Result<std::unique_ptr<Kernel>> prelu_kernel(KernelContext& context) {
  BroadcastWalk<2> walk(context.output(0).dims, {context.input(0).dims, context.input(1).dims});
  const auto make = [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([walk](const KernelRun& run) {
      using C = ComputeType<T>;
      const T* x = run.inputs[0].as<T>();
      const T* slope = run.inputs[1].as<T>();
      T* y = run.outputs[0].out<T>();
      walk.for_each_row([&](std::int64_t out, const auto& at, std::int64_t length, const auto& step) {
        for (std::int64_t i = 0; i < length; ++i) {
          const C value = static_cast<C>(x[at[0] + i * step[0]]);
          if constexpr (kIsFloating<T>) {
            y[out + i] = static_cast<T>(value < C{0} ? value * static_cast<C>(slope[at[1] + i * step[1]]) : value);
          } else {  // wraps
            const auto product =
                static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(slope[at[1] + i * step[1]]);
            y[out + i] = value < C{0} ? static_cast<T>(product) : value;
          }
        }
      });
    });
  };
  switch (context.input(0).dtype) {
    case DType::kInt32:
      return make(TypeTag<std::int32_t>());
    case DType::kInt64:
      return make(TypeTag<std::int64_t>());
    case DType::kUint32:
      return make(TypeTag<std::uint32_t>());
    case DType::kUint64:
      return make(TypeTag<std::uint64_t>());
    default:
      return dispatch_floats(context.input(0).dtype, make);
  }
}

// ---- Clip: bounds are attributes until opset 10, inputs since. Where min > max, max wins. ----

Status infer_clip(ShapeContext& context) {
  for (std::size_t i = 1; i < context.input_count(); ++i) {
    if (context.has_input(i) && element_count(context.dims(i)) != 1) {
      return context.error(Code::kInvalidArgument, "input %zu must be one number, not of shape %s", i,
                           to_string(context.dims(i)).c_str());
    }
  }
  return context.set(0, context.dims(0));
}

Result<std::unique_ptr<Kernel>> clip_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.output(0).dims);
  const Attribute* min = context.node().find("min");
  const Attribute* max = context.node().find("max");
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    C low, high;
    if constexpr (kIsFloating<T>) {
      low = min != nullptr ? static_cast<C>(std::get<float>(min->value)) : -std::numeric_limits<C>::infinity();
      high = max != nullptr ? static_cast<C>(std::get<float>(max->value)) : std::numeric_limits<C>::infinity();
    } else {
      low = std::numeric_limits<C>::lowest();
      high = std::numeric_limits<C>::max();
    }
    return make_kernel([count, low, high](const KernelRun& run) {
      const auto bound = [&](std::size_t i, C fallback) {
        return i < run.inputs.size() && run.inputs[i].present() ? static_cast<C>(*run.inputs[i].as<T>()) : fallback;
      };
      const C least = bound(1, low), most = bound(2, high);
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t i = 0; i < count; ++i) {
        C value = static_cast<C>(x[i]);
        value = value < least ? least : value;
        y[i] = static_cast<T>(value > most ? most : value);
      }
    });
  });
}

constexpr TypeSet kPReluTypes = kFloats | types_of({DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64});

}  // namespace

void register_activations(Registry& registry) {
  const auto activation = [&](const char* op, int first, const char* attributes, TypeSet types, MakeKernel kernel) {
    registry.add({.op = op,
                  .first = first,
                  .inputs = "X:T",
                  .outputs = "Y:T",
                  .attributes = attributes,
                  .types = {{"T", types}},
                  .infer = infer_same,
                  .kernel = kernel});
  };
  activation("LeakyRelu", 7, "alpha:float", kFloats, leaky_relu_kernel);
  activation("Elu", 7, "alpha:float", kFloats, elu_kernel);
  activation("Selu", 7, "alpha:float, gamma:float", kFloats, selu_kernel);
  activation("Celu", 12, "alpha:float", kFloat32, celu_kernel);
  activation("ThresholdedRelu", 10, "alpha:float", kFloats, thresholded_relu_kernel);
  activation("HardSigmoid", 7, "alpha:float, beta:float", kFloats, hard_sigmoid_kernel);
  activation("Shrink", 9, "lambd:float, bias:float", kNumbers, shrink_kernel);
  registry.add({.op = "PRelu",
                .inputs = "X:T, slope:T",
                .outputs = "Y:T",
                .types = {{"T", kPReluTypes}},
                .infer = infer_prelu,
                .kernel = prelu_kernel});
  registry.add({.op = "Clip",
                .last = 10,
                .inputs = "input:T",
                .outputs = "output:T",
                .attributes = "min:float, max:float",
                .types = {{"T", kFloats}},
                .infer = infer_clip,
                .kernel = clip_kernel});
  registry.add({.op = "Clip",
                .first = 11,
                .inputs = "input:T, min:T?, max:T?",
                .outputs = "output:T",
                .types = {{"T", kNumbers}},
                .infer = infer_clip,
                .kernel = clip_kernel});
}

}  // namespace sluice::engine
