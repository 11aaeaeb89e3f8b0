// Operators that make tensors from shapes, and change of element type.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// ---- Shape, Size ----

// [first, last) of the dimensions that Shape yields (start and end since opset 15).
std::pair<std::int64_t, std::int64_t> shape_range(const Node& node, std::int64_t rank) {
  const auto clamp = [&](std::int64_t value) {
    return std::clamp(value < 0 ? value + rank : value, std::int64_t{0}, rank);
  };
  const std::int64_t first = clamp(node.get_int("start", 0));
  return {first, std::max(first, clamp(node.get_int("end", rank)))};
}

Status infer_shape(ShapeContext& context) {
  const auto [first, last] = shape_range(context.node(), context.rank(0));
  return context.set(0, {last - first});
}

Result<std::unique_ptr<Kernel>> shape_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  const auto [first, last] = shape_range(context.node(), static_cast<std::int64_t>(dims.size()));
  return make_kernel([part = Dims(dims.begin() + first, dims.begin() + last)](const KernelRun& run) {
    std::copy(part.begin(), part.end(), run.outputs[0].out<std::int64_t>());
  });
}

Status infer_scalar(ShapeContext& context) { return context.set(0, {}); }

Result<std::unique_ptr<Kernel>> size_kernel(KernelContext& context) {
  return make_kernel([count = element_count(context.input(0).dims)](const KernelRun& run) {
    *run.outputs[0].out<std::int64_t>() = count;
  });
}

// ---- ConstantOfShape, Expand, Range ----

Status infer_constant_of_shape(ShapeContext& context) {
  auto shape = context.ints(0);
  return shape.ok() ? context.set(0, std::move(*shape)) : shape.status();
}

DType value_type(const Node& node, DType) {
  const Tensor* value = node.get_tensor("value");
  return value == nullptr ? DType::kFloat : value->dtype();
}

Status check_value(const Node& node) {
  const Tensor* value = node.get_tensor("value");
  return value == nullptr || value->elements() == 1
             ? Status()
             : Status::error(Code::kInvalidArgument, "%s: its value must have one element; the model is damaged",
                             describe(node).c_str());
}

Result<std::unique_ptr<Kernel>> fill_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.output(0).dims);
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T value{};
    if (const Tensor* tensor = context.node().get_tensor("value")) {
      std::memcpy(&value, tensor->data(), sizeof(T));
    }
    return make_kernel([count, value](const KernelRun& run) { std::fill_n(run.outputs[0].out<T>(), count, value); });
  });
}

Status infer_expand(ShapeContext& context) {
  auto shape = context.ints(1);
  if (!shape.ok()) {
    return shape.status();
  }
  auto dims = broadcast_dims(context, context.dims(0), *shape);
  return dims.ok() ? context.set(0, std::move(*dims)) : dims.status();
}

Result<std::unique_ptr<Kernel>> expand_kernel(KernelContext& context) {
  BroadcastWalk<1> walk(context.output(0).dims, {context.input(0).dims});
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([walk](const KernelRun& run) {
      const T* in = run.inputs[0].as<T>();
      T* out = run.outputs[0].out<T>();
      walk.for_each_row([&](std::int64_t at, const auto& offsets, std::int64_t length, const auto& steps) {
        for (std::int64_t i = 0; i < length; ++i) {
          out[at + i] = in[offsets[0] + i * steps[0]];
        }
      });
    });
  });
}

Status infer_range(ShapeContext& context) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (context.constant(i) == nullptr) {
      return context.ints(i).status();
    }
    if (context.constant(i)->elements() != 1) {
      return context.error(Code::kInvalidArgument, "input %zu must be one number", i);
    }
  }
  const Tensor &start = *context.constant(0), &limit = *context.constant(1), &delta = *context.constant(2);
  double count = 0;
  if (is_floating(start.dtype())) {
    count = std::ceil((limit.as_double(0) - start.as_double(0)) / delta.as_double(0));
  } else if (delta.as_int(0) != 0) {
    const auto span = static_cast<__int128>(limit.as_int(0)) - start.as_int(0);
    const __int128 step = delta.as_int(0);
    const __int128 steps = (span + step - (step > 0 ? 1 : -1)) / step;
    count = static_cast<double>(steps);
  }
  constexpr double kMost = 1ll << 40;  // far above any limit of memory
  if (!(count <= kMost) || delta.as_double(0) == 0) {
    return context.error(Code::kInvalidArgument, "it yields no finite number of elements");
  }
  return context.set(0, {static_cast<std::int64_t>(std::max(count, 0.0))});
}

Result<std::unique_ptr<Kernel>> range_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.output(0).dims);
  return dispatch_numbers(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([count](const KernelRun& run) {
      using C = std::conditional_t<kIsFloating<T>, double, std::uint64_t>;  // integers wrap
      // NOLINTNEXTLINE(bugprone-signed-char-misuse): int8 is a number
      const C start = static_cast<C>(*run.inputs[0].as<T>()), delta = static_cast<C>(*run.inputs[2].as<T>());
      T* out = run.outputs[0].out<T>();
      for (std::int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<T>(start + static_cast<C>(i) * delta);
      }
    });
  });
}

// ---- Cast ----

// Out of range goes to the nearest integer there is, NaN to 0: C++ leaves both open.
template <class R, class T>
R convert(T value) {
  if constexpr (std::is_same_v<R, bool>) {
    return value != T{0};
  } else if constexpr (std::is_integral_v<R> && std::is_floating_point_v<T>) {
    constexpr auto kLeast = static_cast<T>(std::numeric_limits<R>::lowest());
    constexpr R kHalf = std::numeric_limits<R>::max() / 2 + 1;
    constexpr auto kBeyond = static_cast<T>(kHalf) * T{2};
    return std::isnan(value)  ? R{0}
           : value < kLeast   ? std::numeric_limits<R>::lowest()
           : value >= kBeyond ? std::numeric_limits<R>::max()
                              : static_cast<R>(value);
  } else {
    return static_cast<R>(value);
  }
}

template <class T, class R>
Result<std::unique_ptr<Kernel>> cast_of(std::int64_t count) {
  return make_kernel([count](const KernelRun& run) {
    const T* in = run.inputs[0].as<T>();
    R* out = run.outputs[0].out<R>();
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<R, Half> || std::is_same_v<R, BFloat16>) {
        out[i] = R(static_cast<float>(in[i]));
      } else {
        out[i] = convert<R>(static_cast<ComputeType<T>>(in[i]));
      }
    }
  });
}

Result<std::unique_ptr<Kernel>> cast_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.output(0).dims);
  const DType to = context.output(0).dtype;
  return dispatch_numbers(context.input(0).dtype, [&](auto from_tag) {
    using T = typename decltype(from_tag)::type;
    if (to == DType::kBool) {
      return cast_of<T, bool>(count);
    }
    return dispatch_numbers(to, [&](auto to_tag) { return cast_of<T, typename decltype(to_tag)::type>(count); });
  });
}

Status infer_same(ShapeContext& context) { return context.set(0, context.dims(0)); }

DType cast_type(const Node& node, DType) {
  const std::int64_t to = node.get_int("to", 0);
  return to > 0 && to <= 16 ? static_cast<DType>(to) : DType::kUndefined;
}

// Until opset 17 ONNX does not say how to round to bfloat16, and runtimes differ.
constexpr TypeSet kCastTargets = kAllTypes & ~types_of({DType::kBFloat16});
constexpr TypeSet kRanges = types_of({DType::kFloat, DType::kDouble, DType::kInt16, DType::kInt32, DType::kInt64});

}  // namespace

void register_shape_data(Registry& registry) {
  registry.add({.op = "Shape",
                .last = 14,
                .inputs = "data:T",
                .outputs = "shape:I",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .infer = infer_shape,
                .kernel = shape_kernel,
                .shape_only = true});
  registry.add({.op = "Shape",
                .first = 15,
                .inputs = "data:T",
                .outputs = "shape:I",
                .attributes = "start:int, end:int",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .infer = infer_shape,
                .kernel = shape_kernel,
                .shape_only = true});
  registry.add({.op = "Size",
                .inputs = "data:T",
                .outputs = "size:I",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .infer = infer_scalar,
                .kernel = size_kernel,
                .shape_only = true});
  registry.add({.op = "ConstantOfShape",
                .first = 9,
                .inputs = "input:I",
                .outputs = "output:T",
                .attributes = "value:tensor",
                .types = {{"I", kInt64s}, {"T", kAllTypes}},
                .shape_inputs = {0},
                .infer = infer_constant_of_shape,
                .kernel = fill_kernel,
                .output_type = value_type,
                .check = check_value});
  registry.add({.op = "Expand",
                .first = 8,
                .inputs = "input:T, shape:I",
                .outputs = "output:T",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_expand,
                .kernel = expand_kernel});
  registry.add({.op = "Range",
                .first = 11,
                .inputs = "start:T, limit:T, delta:T",
                .outputs = "output:T",
                .types = {{"T", kRanges}},
                .shape_inputs = {0, 1, 2},
                .infer = infer_range,
                .kernel = range_kernel});
  registry.add({.op = "Cast",
                .inputs = "input:T1",
                .outputs = "output:T2",
                .attributes = "to:int!",
                .types = {{"T1", kAllTypes}, {"T2", kCastTargets}},
                .infer = infer_same,
                .kernel = cast_kernel,
                .output_type = cast_type});
  registry.add({.op = "CastLike",
                .first = 15,
                .inputs = "input:T1, target_type:T2",
                .outputs = "output:T2",
                .types = {{"T1", kAllTypes}, {"T2", kCastTargets}},
                .infer = infer_same,
                .kernel = cast_kernel});
}

}  // namespace sluice::engine
