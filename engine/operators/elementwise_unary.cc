// Operators on one tensor, element by element, without parameters.
#include <cmath>
#include <numbers>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status infer_same(ShapeContext& context) { return context.set(0, context.dims(0)); }

template <class T, class R, class F>
Result<std::unique_ptr<Kernel>> unary_kernel(const KernelContext& context, F f) {
  const std::int64_t count = element_count(context.output(0).dims);
  return make_kernel([count, f](const KernelRun& run) {
    const T* x = run.inputs[0].as<T>();
    R* y = run.outputs[0].out<R>();
    for (std::int64_t i = 0; i < count; ++i) {
      y[i] = static_cast<R>(f(static_cast<ComputeType<T>>(x[i])));
    }
  });
}

template <class F>
Result<std::unique_ptr<Kernel>> float_kernel(KernelContext& context) {
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return unary_kernel<T, T>(context, F());
  });
}

template <class F>
Result<std::unique_ptr<Kernel>> number_kernel(KernelContext& context) {
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return unary_kernel<T, T>(context, F());
  });
}

// A functor that holds for every floating type.
#define SLUICE_FUNCTOR(name, expression) \
  struct name {                          \
    template <class T>                   \
    T operator()(T x) const {            \
      return static_cast<T>(expression); \
    }                                    \
  }
SLUICE_FUNCTOR(Acos, std::acos(x));
SLUICE_FUNCTOR(Acosh, std::acosh(x));
SLUICE_FUNCTOR(Asin, std::asin(x));
SLUICE_FUNCTOR(Asinh, std::asinh(x));
SLUICE_FUNCTOR(Atan, std::atan(x));
SLUICE_FUNCTOR(Atanh, std::atanh(x));
SLUICE_FUNCTOR(Ceil, std::ceil(x));
SLUICE_FUNCTOR(Cos, std::cos(x));
SLUICE_FUNCTOR(Cosh, std::cosh(x));
SLUICE_FUNCTOR(Erf, std::erf(x));
SLUICE_FUNCTOR(Exp, std::exp(x));
SLUICE_FUNCTOR(Floor, std::floor(x));
SLUICE_FUNCTOR(HardSwish, x* std::fmax(T{0}, std::fmin(T{1}, x / T{6} + T{0.5})));
SLUICE_FUNCTOR(Log, std::log(x));
SLUICE_FUNCTOR(Reciprocal, T{1} / x);
SLUICE_FUNCTOR(Round, std::nearbyint(x));  // ties to even
SLUICE_FUNCTOR(Sigmoid, x >= 0 ? T{1} / (T{1} + std::exp(-x)) : std::exp(x) / (T{1} + std::exp(x)));
SLUICE_FUNCTOR(Sin, std::sin(x));
SLUICE_FUNCTOR(Sinh, std::sinh(x));
SLUICE_FUNCTOR(Softplus, std::fmax(x, T{0}) + std::log1p(std::exp(-std::fabs(x))));
SLUICE_FUNCTOR(Softsign, x / (T{1} + std::fabs(x)));
SLUICE_FUNCTOR(Sqrt, std::sqrt(x));
SLUICE_FUNCTOR(Tan, std::tan(x));
SLUICE_FUNCTOR(Tanh, std::tanh(x));
SLUICE_FUNCTOR(Relu, x > T{0} || x != x ? x : T{0});
SLUICE_FUNCTOR(Sign, x > T{0} ? T{1} : x < T{0} ? T(-1) : x);  // NaN stays
#undef SLUICE_FUNCTOR

// Wraps for the smallest integer, which has no opposite.
struct Neg {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x));
    } else {
      return -x;
    }
  }
};
struct Abs {
  template <class T>
  T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else if constexpr (std::is_integral_v<T>) {
      return x < 0 ? Neg()(x) : x;
    } else {
      return std::fabs(x);
    }
  }
};

Result<std::unique_ptr<Kernel>> not_kernel(KernelContext& context) {
  return unary_kernel<std::uint8_t, std::uint8_t>(context, [](std::uint8_t x) { return x == 0; });
}

Result<std::unique_ptr<Kernel>> is_nan_kernel(KernelContext& context) {
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    return unary_kernel<typename decltype(tag)::type, std::uint8_t>(context, [](auto x) { return std::isnan(x); });
  });
}

Result<std::unique_ptr<Kernel>> is_inf_kernel(KernelContext& context) {
  const bool positive = context.node().get_int("detect_positive", 1) != 0;
  const bool negative = context.node().get_int("detect_negative", 1) != 0;
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    return unary_kernel<typename decltype(tag)::type, std::uint8_t>(
        context, [=](auto x) { return std::isinf(x) && (x > 0 ? positive : negative); });
  });
}

}  // namespace

void register_elementwise_unary(Registry& registry) {
  const auto unary = [&](const char* op, TypeSet types, MakeKernel kernel, int first = 7) {
    registry.add({.op = op,
                  .first = first,
                  .inputs = "X:T",
                  .outputs = "Y:T",
                  .types = {{"T", types}},
                  .infer = infer_same,
                  .kernel = kernel});
  };
  unary("Abs", kNumbers, number_kernel<Abs>);
  unary("Acos", kFloats, float_kernel<Acos>);
  unary("Acosh", kFloats, float_kernel<Acosh>, 9);
  unary("Asin", kFloats, float_kernel<Asin>);
  unary("Asinh", kFloats, float_kernel<Asinh>, 9);
  unary("Atan", kFloats, float_kernel<Atan>);
  unary("Atanh", kFloats, float_kernel<Atanh>, 9);
  unary("Ceil", kFloats, float_kernel<Ceil>);
  unary("Cos", kFloats, float_kernel<Cos>);
  unary("Cosh", kFloats, float_kernel<Cosh>, 9);
  unary("Erf", kFloats, float_kernel<Erf>, 9);
  unary("Exp", kFloats, float_kernel<Exp>);
  unary("Floor", kFloats, float_kernel<Floor>);
  unary("HardSwish", kFloats, float_kernel<HardSwish>, 14);
  unary("Log", kFloats, float_kernel<Log>);
  unary("Neg", kFloats | kSigned, number_kernel<Neg>);
  unary("Not", kBools, not_kernel);
  unary("Reciprocal", kFloats, float_kernel<Reciprocal>);
  unary("Relu", kFloats | kSigned, number_kernel<Relu>);
  unary("Round", kFloats, float_kernel<Round>, 11);
  unary("Sigmoid", kFloats, float_kernel<Sigmoid>);
  unary("Sign", kNumbers, number_kernel<Sign>, 9);
  unary("Sin", kFloats, float_kernel<Sin>);
  unary("Sinh", kFloats, float_kernel<Sinh>, 9);
  unary("Softplus", kFloats, float_kernel<Softplus>);
  unary("Softsign", kFloats, float_kernel<Softsign>);
  unary("Sqrt", kFloats, float_kernel<Sqrt>);
  unary("Tan", kFloats, float_kernel<Tan>);
  unary("Tanh", kFloats, float_kernel<Tanh>);
  registry.add({.op = "IsNaN",
                .first = 9,
                .inputs = "X:T",
                .outputs = "Y:B",
                .types = {{"T", kFloats}, {"B", kBools}},
                .infer = infer_same,
                .kernel = is_nan_kernel});
  registry.add({.op = "IsInf",
                .first = 10,
                .inputs = "X:T",
                .outputs = "Y:B",
                .attributes = "detect_positive:int, detect_negative:int",
                .types = {{"T", types_of({DType::kFloat, DType::kDouble})}, {"B", kBools}},
                .infer = infer_same,
                .kernel = is_inf_kernel});
}

}  // namespace sluice::engine
