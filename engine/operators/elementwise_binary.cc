// Operators on two or more tensors, element by element, with broadcasting.
#include <cmath>
#include <limits>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/nan.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// C = f(A, B) with A, B of type T and C of type R, each as the engine stores it.
template <class T, class R, class F>
Result<std::unique_ptr<Kernel>> binary_kernel(const KernelContext& context, F f) {
  BroadcastWalk<2> walk(context.output(0).dims, {context.input(0).dims, context.input(1).dims});
  return make_kernel([walk, f](const KernelRun& run) {
    const T* a = run.inputs[0].as<T>();
    const T* b = run.inputs[1].as<T>();
    R* c = run.outputs[0].out<R>();
    walk.for_each_row([&](std::int64_t out, const auto& offsets, std::int64_t length, const auto& steps) {
      const T* x = a + offsets[0];
      const T* y = b + offsets[1];
      for (std::int64_t i = 0; i < length; ++i, x += steps[0], y += steps[1]) {
        c[out + i] = static_cast<R>(f(static_cast<ComputeType<T>>(*x), static_cast<ComputeType<T>>(*y)));
      }
    });
  });
}

// Signed overflow wraps, as it does in every other runtime; in C++ it would be undefined.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<std::common_type_t<T, int>>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};

template <class F>
Result<std::unique_ptr<Kernel>> number_kernel(KernelContext& context) {
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return binary_kernel<T, T>(context, F());
  });
}

// ---- division: what has no result in integers is an error, not a signal ----

Status divides_by_zero(const Node& node) {
  return Status::error(Code::kInvalidArgument, "%s divides an integer by zero", describe(node).c_str());
}

template <class T, class F>
Result<std::unique_ptr<Kernel>> integer_division(const KernelContext& context, F f) {
  BroadcastWalk<2> walk(context.output(0).dims, {context.input(0).dims, context.input(1).dims});
  const Status error = divides_by_zero(context.node());
  return make_kernel([walk, f, error](const KernelRun& run) -> Status {
    const T* a = run.inputs[0].as<T>();
    const T* b = run.inputs[1].as<T>();
    T* c = run.outputs[0].out<T>();
    bool by_zero = false;
    walk.for_each_row([&](std::int64_t out, const auto& offsets, std::int64_t length, const auto& steps) {
      const T* x = a + offsets[0];
      const T* y = b + offsets[1];
      for (std::int64_t i = 0; i < length; ++i, x += steps[0], y += steps[1]) {
        by_zero = by_zero || *y == 0;
        c[out + i] = *y == 0 ? T{0} : f(*x, *y);
      }
    });
    return by_zero ? error : Status();
  });
}

template <class T>
T divide(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) {  // the smallest number has no opposite
      return Sub()(T{0}, a);
    }
  }
  return static_cast<T>(a / b);
}

template <class T>
T remainder(T a, T b, bool fmod) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) {
      return 0;
    }
  }
  const T r = static_cast<T>(a % b);  // the sign of a, as fmod has it
  return fmod || r == 0 || (r < 0) == (b < 0) ? r : static_cast<T>(r + b);
}

Result<std::unique_ptr<Kernel>> div_kernel(KernelContext& context) {
  if (is_floating(context.input(0).dtype)) {
    return dispatch_floats(context.input(0).dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return binary_kernel<T, T>(context, [](auto a, auto b) { return a / b; });
    });
  }
  return dispatch_integers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return integer_division<T>(context, [](T a, T b) { return divide(a, b); });
  });
}

Result<std::unique_ptr<Kernel>> mod_kernel(KernelContext& context) {
  const bool fmod = context.node().get_int("fmod", 0) != 0;
  if (is_floating(context.input(0).dtype)) {
    if (!fmod) {
      return context.error(Code::kInvalidArgument, "floats need the attribute fmod=1");
    }
    return dispatch_floats(context.input(0).dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return binary_kernel<T, T>(context, [](auto a, auto b) { return std::fmod(a, b); });
    });
  }
  return dispatch_integers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return integer_division<T>(context, [fmod](T a, T b) { return remainder(a, b, fmod); });
  });
}

// ---- comparisons and logic ----

template <class F>
Result<std::unique_ptr<Kernel>> compare_kernel(KernelContext& context) {
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return binary_kernel<T, std::uint8_t>(context, F());
  });
}

struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};

template <int kWhich>
Result<std::unique_ptr<Kernel>> logic_kernel(KernelContext& context) {
  return binary_kernel<std::uint8_t, std::uint8_t>(context, [](std::uint8_t a, std::uint8_t b) {
    const bool x = a != 0, y = b != 0;
    return kWhich == 0 ? (x && y) : kWhich == 1 ? (x || y) : x != y;
  });
}

Result<std::unique_ptr<Kernel>> shift_kernel(KernelContext& context) {
  const bool left = context.node().get_string("direction", "") == "LEFT";
  const auto make = [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr T kBits = sizeof(T) * 8;
    return binary_kernel<T, T>(context, [left](T a, T b) -> T {
      return b >= kBits ? T{0} : left ? static_cast<T>(static_cast<std::uint64_t>(a) << b) : static_cast<T>(a >> b);
    });
  };
  switch (context.input(0).dtype) {
    case DType::kUint8:
      return make(TypeTag<std::uint8_t>());
    case DType::kUint16:
      return make(TypeTag<std::uint16_t>());
    case DType::kUint32:
      return make(TypeTag<std::uint32_t>());
    default:
      return make(TypeTag<std::uint64_t>());
  }
}

Status check_shift(const Node& node) {
  const std::string direction = node.get_string("direction", "");
  return direction == "LEFT" || direction == "RIGHT"
             ? Status()
             : refuse(node, "direction is neither LEFT nor RIGHT", "correct it");
}

// ---- Pow: the result has the type of the base ----

template <class T, class E>
T power(T base, E exponent) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    if (exponent < E{0}) {  // as integer division would have it
      return base == 1                                           ? T{1}
             : std::is_signed_v<T> && base == static_cast<T>(-1) ? static_cast<T>(exponent % 2 == 0 ? 1 : -1)
                                                                 : T{0};
    }
    T result = 1;
    for (auto e = static_cast<std::uint64_t>(exponent); e != 0; e >>= 1) {
      result = (e & 1) != 0 ? Mul()(result, base) : result;
      base = Mul()(base, base);
    }
    return result;
  } else if constexpr (std::is_integral_v<T>) {
    const double value = std::pow(static_cast<double>(base), static_cast<double>(exponent));
    constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
    constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::lowest());
    return value >= kMost   ? std::numeric_limits<T>::max()
           : value > kLeast ? static_cast<T>(value)
                            : std::numeric_limits<T>::lowest();  // NaN too
  } else {
    return static_cast<T>(std::pow(base, static_cast<T>(exponent)));
  }
}

// The exponent as a double or an int64, whatever its type: one loader a type instead of a kernel a pair of types.
template <class E>
using Load = E (*)(const void*, std::int64_t);

template <class T, class E>
Result<std::unique_ptr<Kernel>> pow_of(const KernelContext& context, Load<E> load) {
  BroadcastWalk<2> walk(context.output(0).dims, {context.input(0).dims, context.input(1).dims});
  return make_kernel([walk, load](const KernelRun& run) {
    const T* a = run.inputs[0].as<T>();
    const void* b = run.inputs[1].data;
    T* c = run.outputs[0].out<T>();
    walk.for_each_row([&](std::int64_t out, const auto& offsets, std::int64_t length, const auto& steps) {
      for (std::int64_t i = 0; i < length; ++i) {
        c[out + i] = static_cast<T>(
            power(static_cast<ComputeType<T>>(a[offsets[0] + i * steps[0]]), load(b, offsets[1] + i * steps[1])));
      }
    });
  });
}

template <class T>
Result<std::unique_ptr<Kernel>> pow_with(const KernelContext& context) {
  const auto loader = [](auto tag, auto as) {
    using E = decltype(as);
    return [](const void* data, std::int64_t i) {
      return static_cast<E>(static_cast<const typename decltype(tag)::type*>(data)[i]);
    };
  };
  const DType exponent = context.input(1).dtype;
  if (is_floating(exponent)) {
    return pow_of<T, double>(context,
                             dispatch_floats(exponent, [&](auto tag) -> Load<double> { return loader(tag, 0.0); }));
  }
  return pow_of<T, std::int64_t>(context, dispatch_integers(exponent, [&](auto tag) -> Load<std::int64_t> {
                                   return loader(tag, std::int64_t{0});
                                 }));
}

Result<std::unique_ptr<Kernel>> pow_kernel(KernelContext& context) {
  switch (context.input(0).dtype) {
    case DType::kInt32:
      return pow_with<std::int32_t>(context);
    case DType::kInt64:
      return pow_with<std::int64_t>(context);
    default:
      return dispatch_floats(context.input(0).dtype,
                             [&](auto tag) { return pow_with<typename decltype(tag)::type>(context); });
  }
}

// ---- any number of inputs ----

struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return is_nan(a) || a < b ? a : b;  // NaN wins, as in numpy
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return is_nan(a) || a > b ? a : b;
  }
};

// Inputs are taken one after the other into the result, in the type that calculations are done in.
template <class T, class F>
Result<std::unique_ptr<Kernel>> variadic_of(const KernelContext& context, F f, bool mean) {
  using C = ComputeType<T>;
  std::vector<BroadcastWalk<1>> walks;
  for (std::size_t i = 0; i < context.input_count(); ++i) {
    walks.push_back(BroadcastWalk<1>(context.output(0).dims, {context.input(i).dims}));
  }
  const std::int64_t count = element_count(context.output(0).dims);
  class Variadic final : public Kernel {
   public:
    Variadic(std::vector<BroadcastWalk<1>> walks, F f, bool mean, std::int64_t count)
        : walks_(std::move(walks)), f_(f), mean_(mean), count_(count) {}
    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(count_) * sizeof(C); }
    Status run(const KernelRun& run) override {
      C* sum = reinterpret_cast<C*>(run.scratch);
      for (std::size_t n = 0; n < walks_.size(); ++n) {
        const T* in = run.inputs[n].template as<T>();
        walks_[n].for_each_row([&](std::int64_t out, const auto& offsets, std::int64_t length, const auto& steps) {
          for (std::int64_t i = 0; i < length; ++i) {
            const C value = static_cast<C>(in[offsets[0] + i * steps[0]]);
            sum[out + i] = n == 0 ? value : f_(sum[out + i], value);
          }
        });
      }
      T* out = run.outputs[0].template out<T>();
      for (std::int64_t i = 0; i < count_; ++i) {
        out[i] = static_cast<T>(mean_ ? sum[i] / static_cast<C>(walks_.size()) : sum[i]);
      }
      return {};
    }

   private:
    std::vector<BroadcastWalk<1>> walks_;
    F f_;
    bool mean_;
    std::int64_t count_;
  };
  return Result<std::unique_ptr<Kernel>>(std::make_unique<Variadic>(std::move(walks), f, mean, count));
}

template <class F>
Result<std::unique_ptr<Kernel>> variadic_kernel(KernelContext& context) {
  return dispatch_numbers(context.input(0).dtype,
                          [&](auto tag) { return variadic_of<typename decltype(tag)::type>(context, F(), false); });
}

template <bool kMean>
Result<std::unique_ptr<Kernel>> sum_kernel(KernelContext& context) {
  return dispatch_floats(context.input(0).dtype,
                         [&](auto tag) { return variadic_of<typename decltype(tag)::type>(context, Add(), kMean); });
}

// ---- Where ----

Result<std::unique_ptr<Kernel>> where_kernel(KernelContext& context) {
  BroadcastWalk<3> walk(context.output(0).dims, {context.input(0).dims, context.input(1).dims, context.input(2).dims});
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([walk](const KernelRun& run) {
      const auto* condition = run.inputs[0].as<std::uint8_t>();
      const T* a = run.inputs[1].as<T>();
      const T* b = run.inputs[2].as<T>();
      T* c = run.outputs[0].out<T>();
      walk.for_each_row([&](std::int64_t out, const auto& offsets, std::int64_t length, const auto& steps) {
        for (std::int64_t i = 0; i < length; ++i) {
          c[out + i] =
              condition[offsets[0] + i * steps[0]] != 0 ? a[offsets[1] + i * steps[1]] : b[offsets[2] + i * steps[2]];
        }
      });
    });
  });
}

constexpr TypeSet kPowBases = kFloats | types_of({DType::kInt32, DType::kInt64});

}  // namespace

void register_elementwise_binary(Registry& registry) {
  const auto arithmetic = [&](const char* op, TypeSet types, MakeKernel kernel, const char* attributes = "",
                              int first = 7) {
    registry.add({.op = op,
                  .first = first,
                  .inputs = "A:T, B:T",
                  .outputs = "C:T",
                  .attributes = attributes,
                  .types = {{"T", types}},
                  .infer = infer_broadcast,
                  .kernel = kernel});
  };
  arithmetic("Add", kNumbers, number_kernel<Add>);
  arithmetic("Sub", kNumbers, number_kernel<Sub>);
  arithmetic("Mul", kNumbers, number_kernel<Mul>);
  arithmetic("Div", kNumbers, div_kernel);
  arithmetic("Mod", kNumbers, mod_kernel, "fmod:int", 10);
  arithmetic("And", kBools, logic_kernel<0>);
  arithmetic("Or", kBools, logic_kernel<1>);
  arithmetic("Xor", kBools, logic_kernel<2>);
  registry.add({.op = "BitShift",
                .first = 11,
                .inputs = "X:T, Y:T",
                .outputs = "Z:T",
                .attributes = "direction:string!",
                .types = {{"T", kUnsigned}},
                .infer = infer_broadcast,
                .kernel = shift_kernel,
                .check = check_shift});
  registry.add({.op = "Pow",
                .inputs = "X:T, Y:T1",
                .outputs = "Z:T",
                .types = {{"T", kPowBases}, {"T1", kNumbers}},
                .infer = infer_broadcast,
                .kernel = pow_kernel});
  registry.add({.op = "Where",
                .first = 9,
                .inputs = "condition:B, X:T, Y:T",
                .outputs = "output:T",
                .types = {{"B", kBools}, {"T", kAllTypes}},
                .infer = infer_broadcast,
                .kernel = where_kernel});

  const auto comparison = [&](const char* op, TypeSet types, MakeKernel kernel, int first = 7) {
    registry.add({.op = op,
                  .first = first,
                  .inputs = "A:T, B:T",
                  .outputs = "C:B",
                  .types = {{"T", types}, {"B", kBools}},
                  .infer = infer_broadcast,
                  .kernel = kernel});
  };
  comparison("Equal", kAllTypes, compare_kernel<Equal>);
  comparison("Less", kNumbers, compare_kernel<Less>);
  comparison("Greater", kNumbers, compare_kernel<Greater>);
  comparison("LessOrEqual", kNumbers, compare_kernel<LessOrEqual>, 12);
  comparison("GreaterOrEqual", kNumbers, compare_kernel<GreaterOrEqual>, 12);

  const auto variadic = [&](const char* op, TypeSet types, MakeKernel kernel, int first) {
    registry.add({.op = op,
                  .first = first,
                  .inputs = "data_0:T*",
                  .outputs = "result:T",
                  .types = {{"T", types}},
                  .infer = infer_broadcast,
                  .kernel = kernel});
  };
  variadic("Min", kNumbers, variadic_kernel<Minimum>, 8);
  variadic("Max", kNumbers, variadic_kernel<Maximum>, 8);
  variadic("Sum", kFloats, sum_kernel<false>, 8);
  variadic("Mean", kFloats, sum_kernel<true>, 8);
}

}  // namespace sluice::engine
