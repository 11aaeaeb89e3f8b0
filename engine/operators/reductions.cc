// Reductions along axes. Floats are summed in double, integers in 64 bits and wrap.
#include <algorithm>
#include <cmath>
#include <limits>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/nan.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// Whether each dimension is reduced. An attribute until opset 12 (ReduceSum) or 17 (all others), an input since; none
// means all.
template <class Ints>
Result<std::vector<bool>> reduced_dims(const Node& node, std::int64_t rank, Ints&& ints) {
  std::vector<std::int64_t> axes = node.get_ints("axes");
  if (node.has_input(1)) {
    auto values = ints(1);
    if (!values.ok()) {
      return values.status();
    }
    axes = std::move(*values);
  }
  const bool all = axes.empty() && node.get_int("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(static_cast<std::size_t>(rank), all);
  for (std::int64_t axis : axes) {
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank) {
      return Status::error(Code::kInvalidArgument, "%s: axes %s of a tensor of %lld dimensions", describe(node).c_str(),
                           to_string(axes).c_str(), static_cast<long long>(rank));
    }
    reduced[static_cast<std::size_t>(axis)] = true;
  }
  return reduced;
}

Status infer_reduction(ShapeContext& context) {
  auto reduces = reduced_dims(context.node(), context.rank(0), [&](std::size_t i) { return context.ints(i); });
  if (!reduces.ok()) {
    return reduces.status();
  }
  const bool keep = context.node().get_int("keepdims", 1) != 0;
  const bool has_neutral = context.node().op != "ReduceMax" && context.node().op != "ReduceMin";
  Dims dims;
  bool empty = false;
  for (std::size_t d = 0; d < reduces->size(); ++d) {
    if (!(*reduces)[d]) {
      dims.push_back(context.dims(0)[d]);
    } else {
      empty = empty || context.dims(0)[d] == 0;
      if (keep) {
        dims.push_back(1);
      }
    }
  }
  if (empty && !has_neutral && element_count(dims) > 0) {
    return context.error(Code::kInvalidArgument, "it reduces no elements, of which there is no extreme");
  }
  return context.set(0, std::move(dims));
}

// ---- steps: how one value joins the result ----

template <class A>
using Unsigned = std::conditional_t<std::is_integral_v<A>, std::uint64_t, A>;  // in which integers wrap

template <class A>
A absolute(A x) {
  return x < A{0} ? static_cast<A>(Unsigned<A>{0} - static_cast<Unsigned<A>>(x)) : x;
}

struct AddValue {
  template <class A>
  static A step(A sum, A x) {
    return static_cast<A>(static_cast<Unsigned<A>>(sum) + static_cast<Unsigned<A>>(x));
  }
};
struct AddAbsolute {
  template <class A>
  static A step(A sum, A x) {
    return AddValue::step(sum, absolute(x));
  }
};
struct AddSquare {
  template <class A>
  static A step(A sum, A x) {
    return AddValue::step(sum, static_cast<A>(static_cast<Unsigned<A>>(x) * static_cast<Unsigned<A>>(x)));
  }
};
struct Multiply {
  template <class A>
  static A step(A product, A x) {
    return static_cast<A>(static_cast<Unsigned<A>>(product) * static_cast<Unsigned<A>>(x));
  }
};
struct TakeMax {
  template <class A>
  static A step(A most, A x) {
    return x > most || is_nan(x) ? x : most;  // NaN stays
  }
};
struct TakeMin {
  template <class A>
  static A step(A least, A x) {
    return x < least || is_nan(x) ? x : least;
  }
};

using Finish = double (*)(double sum, double count);
double keep_sum(double sum, double) { return sum; }

constexpr std::int64_t kChunk = 256;

template <class A>
using Load = void (*)(const void* data, std::int64_t at, std::int64_t count, A* values);
template <class A>
using Store = void (*)(const A* values, std::int64_t count, void* data);

template <class T, class A>
void load(const void* data, std::int64_t at, std::int64_t count, A* values) {
  const T* in = static_cast<const T*>(data) + at;
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<A>(in[i]);  // NOLINT(bugprone-signed-char-misuse): int8 is a number
  }
}

template <class T, class A>
void store(const A* values, std::int64_t count, void* data) {
  T* out = static_cast<T*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      out[i] = T(static_cast<float>(values[i]));
    } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<A>) {
      constexpr A kMost = static_cast<A>(std::numeric_limits<T>::max());
      constexpr A kLeast = static_cast<A>(std::numeric_limits<T>::lowest());
      out[i] = values[i] >= kMost   ? std::numeric_limits<T>::max()
               : values[i] > kLeast ? static_cast<T>(values[i])
                                    : std::numeric_limits<T>::lowest();
    } else {
      out[i] = static_cast<T>(values[i]);
    }
  }
}

// The element type's part of a kernel, so that the rest is compiled once for each way to sum.
template <class A>
struct Access {
  Load<A> load = nullptr;
  Store<A> store = nullptr;
};

struct Shape {
  BroadcastWalk<1> walk{{}, {Dims()}};  // along the input; the position is that in the result
  std::int64_t results = 0;
  double reduced = 0;  // elements in each result
};

// Calls f(result, value) in the order of the input.
template <class A, class F>
void for_each_value(const Shape& shape, Load<A> load_values, const void* data, A* results, F f) {
  shape.walk.for_each_row([&](std::int64_t in, const auto& offsets, std::int64_t length, const auto& steps) {
    A values[kChunk];
    for (std::int64_t done = 0; done < length; done += kChunk) {
      const std::int64_t count = std::min(kChunk, length - done);
      load_values(data, in + done, count, values);
      A* at = results + offsets[0] + done * steps[0];
      if (steps[0] == 0) {
        A result = *at;
        for (std::int64_t i = 0; i < count; ++i) {
          result = f(result, values[i], at);
        }
        *at = result;
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          at[i] = f(at[i], values[i], at + i);
        }
      }
    }
  });
}

template <class A, class Step>
class Reduction final : public Kernel {
 public:
  Reduction(Shape shape, Access<A> access, A start, Finish finish)
      : shape_(std::move(shape)), access_(access), start_(start), finish_(finish) {}
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(shape_.results) * sizeof(A); }
  Status run(const KernelRun& run) override {
    A* results = reinterpret_cast<A*>(run.scratch);
    std::fill_n(results, shape_.results, start_);
    for_each_value<A>(shape_, access_.load, run.inputs[0].data, results,
                      [](A result, A value, const A*) { return Step::step(result, value); });
    if constexpr (std::is_floating_point_v<A>) {
      for (std::int64_t i = 0; i < shape_.results; ++i) {
        results[i] = finish_(results[i], shape_.reduced);
      }
    }
    access_.store(results, shape_.results, run.outputs[0].data);
    return {};
  }

 private:
  Shape shape_;
  Access<A> access_;
  A start_;
  Finish finish_;
};

// log(sum(exp(x))), with the largest element taken out so that nothing overflows.
class LogSumExp final : public Kernel {
 public:
  LogSumExp(Shape shape, Access<double> access) : shape_(std::move(shape)), access_(access) {}
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(shape_.results) * 2 * sizeof(double); }
  Status run(const KernelRun& run) override {
    double* most = reinterpret_cast<double*>(run.scratch);
    double* sums = most + shape_.results;
    std::fill_n(most, shape_.results, -std::numeric_limits<double>::infinity());
    std::fill_n(sums, shape_.results, 0.0);
    for_each_value<double>(shape_, access_.load, run.inputs[0].data, most,
                           [](double result, double value, const double*) { return TakeMax::step(result, value); });
    for (std::int64_t i = 0; i < shape_.results; ++i) {
      most[i] = std::isinf(most[i]) ? 0.0 : most[i];
    }
    for_each_value<double>(
        shape_, access_.load, run.inputs[0].data, sums,
        [&](double result, double value, const double* at) { return result + std::exp(value - most[at - sums]); });
    for (std::int64_t i = 0; i < shape_.results; ++i) {
      sums[i] = std::log(sums[i]) + most[i];
    }
    access_.store(sums, shape_.results, run.outputs[0].data);
    return {};
  }

 private:
  Shape shape_;
  Access<double> access_;
};

Result<Shape> shape_of(const KernelContext& context) {
  const Dims& in = context.input(0).dims;
  auto reduces = reduced_dims(context.node(), static_cast<std::int64_t>(in.size()), [&](std::size_t i) {
    return Result<std::vector<std::int64_t>>(int_values(*context.constant(i)));
  });
  if (!reduces.ok()) {
    return reduces.status();
  }
  Dims kept = in;
  double reduced = 1;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if ((*reduces)[d]) {
      reduced *= static_cast<double>(in[d]);
      kept[d] = 1;
    }
  }
  return Shape{BroadcastWalk<1>(in, {kept}), element_count(kept), reduced};
}

template <class A>
Access<A> access_to(DType dtype) {
  if constexpr (std::is_same_v<A, double>) {
    return dispatch_numbers(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      return Access<A>{load<T, A>, store<T, A>};
    });
  } else {
    return dispatch_integers(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      return Access<A>{load<T, A>, store<T, A>};
    });
  }
}

template <class A, class Step>
Result<std::unique_ptr<Kernel>> reduction(const KernelContext& context, A start, Finish finish) {
  auto shape = shape_of(context);
  if (!shape.ok()) {
    return shape.status();
  }
  return Result<std::unique_ptr<Kernel>>(
      std::make_unique<Reduction<A, Step>>(std::move(*shape), access_to<A>(context.input(0).dtype), start, finish));
}

// In the widest type of the input's kind.
template <class Step>
Result<std::unique_ptr<Kernel>> exact(const KernelContext& context, int start) {
  const DType dtype = context.input(0).dtype;
  if (is_floating(dtype)) {
    return reduction<double, Step>(context, start, keep_sum);
  }
  return contains(kSigned, dtype) ? reduction<std::int64_t, Step>(context, start, nullptr)
                                  : reduction<std::uint64_t, Step>(context, static_cast<std::uint64_t>(start), nullptr);
}

template <class Step>
Result<std::unique_ptr<Kernel>> extreme(const KernelContext& context) {
  constexpr bool kMax = std::is_same_v<Step, TakeMax>;
  const auto start = [](auto limits) { return kMax ? limits.lowest() : limits.max(); };
  const DType dtype = context.input(0).dtype;
  if (is_floating(dtype)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return reduction<double, Step>(context, kMax ? -kInfinity : kInfinity, keep_sum);
  }
  return contains(kSigned, dtype)
             ? reduction<std::int64_t, Step>(context, start(std::numeric_limits<std::int64_t>()), nullptr)
             : reduction<std::uint64_t, Step>(context, start(std::numeric_limits<std::uint64_t>()), nullptr);
}

Result<std::unique_ptr<Kernel>> sum_kernel(KernelContext& context) { return exact<AddValue>(context, 0); }
Result<std::unique_ptr<Kernel>> l1_kernel(KernelContext& context) { return exact<AddAbsolute>(context, 0); }
Result<std::unique_ptr<Kernel>> sum_square_kernel(KernelContext& context) { return exact<AddSquare>(context, 0); }
Result<std::unique_ptr<Kernel>> product_kernel(KernelContext& context) { return exact<Multiply>(context, 1); }
Result<std::unique_ptr<Kernel>> max_kernel(KernelContext& context) { return extreme<TakeMax>(context); }
Result<std::unique_ptr<Kernel>> min_kernel(KernelContext& context) { return extreme<TakeMin>(context); }

Result<std::unique_ptr<Kernel>> mean_kernel(KernelContext& context) {
  return reduction<double, AddValue>(context, 0, [](double sum, double count) { return sum / count; });
}
Result<std::unique_ptr<Kernel>> l2_kernel(KernelContext& context) {
  return reduction<double, AddSquare>(context, 0, [](double sum, double) { return std::sqrt(sum); });
}
Result<std::unique_ptr<Kernel>> log_sum_kernel(KernelContext& context) {
  return reduction<double, AddValue>(context, 0, [](double sum, double) { return std::log(sum); });
}
Result<std::unique_ptr<Kernel>> log_sum_exp_kernel(KernelContext& context) {
  auto shape = shape_of(context);
  if (!shape.ok()) {
    return shape.status();
  }
  return Result<std::unique_ptr<Kernel>>(
      std::make_unique<LogSumExp>(std::move(*shape), access_to<double>(context.input(0).dtype)));
}

constexpr TypeSet kWide = kFloats | types_of({DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64});

}  // namespace

void register_reductions(Registry& registry) {
  const auto by_attribute = [&](const char* op, TypeSet types, MakeKernel kernel, int last = 17) {
    registry.add({.op = op,
                  .last = last,
                  .inputs = "data:T",
                  .outputs = "reduced:T",
                  .attributes = "axes:ints, keepdims:int",
                  .types = {{"T", types}},
                  .infer = infer_reduction,
                  .kernel = kernel});
  };
  by_attribute("ReduceL1", kWide, l1_kernel);
  by_attribute("ReduceL2", kWide, l2_kernel);
  by_attribute("ReduceLogSum", kWide, log_sum_kernel);
  by_attribute("ReduceLogSumExp", kWide, log_sum_exp_kernel);
  by_attribute("ReduceMax", kWide | types_of({DType::kInt8, DType::kUint8}), max_kernel);
  by_attribute("ReduceMean", kWide, mean_kernel);
  by_attribute("ReduceMin", kWide | types_of({DType::kInt8, DType::kUint8}), min_kernel);
  by_attribute("ReduceProd", kWide, product_kernel);
  by_attribute("ReduceSum", kWide, sum_kernel, 12);
  by_attribute("ReduceSumSquare", kWide, sum_square_kernel);
  registry.add({.op = "ReduceSum",
                .first = 13,
                .inputs = "data:T, axes:I?",
                .outputs = "reduced:T",
                .attributes = "keepdims:int, noop_with_empty_axes:int",
                .types = {{"T", kWide}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_reduction,
                .kernel = sum_kernel});
}

}  // namespace sluice::engine
