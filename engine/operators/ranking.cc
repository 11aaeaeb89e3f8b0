// ArgMax, ArgMin and TopK.
#include <algorithm>
#include <cmath>

#include "operators/dispatch.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// A tensor as [outer, length, inner], with the axis in the middle.
struct Along {
  std::int64_t outer = 1, length = 1, inner = 1;
};

Along along(const Dims& dims, std::int64_t axis) {
  axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
  return {element_count(Dims(dims.begin(), dims.begin() + axis)), dims[static_cast<std::size_t>(axis)],
          element_count(Dims(dims.begin() + axis + 1, dims.end()))};
}

// Whether a stands before b when the largest come first. NaN counts as the largest, as in numpy.
template <class T>
bool above(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) {
      return !std::isnan(b);
    }
  }
  return a > b;
}
template <class T>
bool below(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) {
      return !std::isnan(b);
    }
  }
  return a < b;
}

// ---- ArgMax, ArgMin ----

Status infer_arg(ShapeContext& context) {
  auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  Dims dims = context.dims(0);
  const auto at = dims.begin() + *axis;
  if (*at == 0) {
    return context.error(Code::kInvalidArgument, "there is no element along axis %lld", static_cast<long long>(*axis));
  }
  if (context.node().get_int("keepdims", 1) != 0) {
    *at = 1;
  } else {
    dims.erase(at);
  }
  return context.set(0, std::move(dims));
}

template <class T, bool kMax>
class Arg final : public Kernel {
 public:
  Arg(Along shape, bool last) : shape_(shape), last_(last) {}
  Status run(const KernelRun& run) override {
    const T* in = run.inputs[0].as<T>();
    auto* out = run.outputs[0].out<std::int64_t>();
    for (std::int64_t o = 0; o < shape_.outer; ++o, in += shape_.length * shape_.inner) {
      for (std::int64_t i = 0; i < shape_.inner; ++i) {
        std::int64_t best = 0;
        for (std::int64_t k = 1; k < shape_.length; ++k) {
          const auto value = static_cast<ComputeType<T>>(in[k * shape_.inner + i]);
          const auto most = static_cast<ComputeType<T>>(in[best * shape_.inner + i]);
          const bool better = kMax ? above(value, most) : below(value, most);
          const bool worse = kMax ? above(most, value) : below(most, value);
          best = better || (last_ && !worse) ? k : best;
        }
        *out++ = best;
      }
    }
    return {};
  }

 private:
  Along shape_;
  bool last_;  // of equal ones
};

template <bool kMax>
Result<std::unique_ptr<Kernel>> arg_kernel(KernelContext& context) {
  const Along shape = along(context.input(0).dims, context.node().get_int("axis", 0));
  const bool last = context.node().get_int("select_last_index", 0) != 0;
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    return Result<std::unique_ptr<Kernel>>(std::make_unique<Arg<typename decltype(tag)::type, kMax>>(shape, last));
  });
}

// ---- TopK: k is an attribute until opset 9, an input since ----

Status infer_top_k(ShapeContext& context) {
  auto axis = context.axis(context.node().get_int("axis", -1), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  std::vector<std::int64_t> k = {context.node().get_int("k", 0)};
  if (context.node().opset >= 10) {
    auto values = context.ints(1);
    if (!values.ok()) {
      return values.status();
    }
    k = std::move(*values);
  }
  Dims dims = context.dims(0);
  std::int64_t& dim = dims[static_cast<std::size_t>(*axis)];
  if (k.size() != 1 || k[0] < 0 || k[0] > dim) {
    return context.error(Code::kInvalidArgument, "k %s of %lld elements", to_string(k).c_str(),
                         static_cast<long long>(dim));
  }
  dim = k[0];
  if (Status status = context.set(0, dims); !status.ok()) {
    return status;
  }
  return context.set(1, std::move(dims));
}

// The best ones in order, equal ones by index; also where the node does not ask for an order.
template <class T>
class TopK final : public Kernel {
 public:
  TopK(Along shape, std::int64_t k, bool largest) : shape_(shape), k_(k), largest_(largest) {}
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(shape_.length) * sizeof(std::int64_t); }
  Status run(const KernelRun& run) override {
    auto* order = reinterpret_cast<std::int64_t*>(run.scratch);
    const T* in = run.inputs[0].as<T>();
    T* values = run.outputs[0].present() ? run.outputs[0].out<T>() : nullptr;
    auto* indices = run.outputs.size() > 1 && run.outputs[1].present() ? run.outputs[1].out<std::int64_t>() : nullptr;
    const std::int64_t inner = shape_.inner;
    for (std::int64_t o = 0; o < shape_.outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const T* row = in + o * shape_.length * inner + i;
        for (std::int64_t n = 0; n < shape_.length; ++n) {
          order[n] = n;
        }
        std::partial_sort(order, order + k_, order + shape_.length, [&](std::int64_t a, std::int64_t b) {
          const auto x = static_cast<ComputeType<T>>(row[a * inner]), y = static_cast<ComputeType<T>>(row[b * inner]);
          if (largest_ ? above(x, y) : below(x, y)) {
            return true;
          }
          return !(largest_ ? above(y, x) : below(y, x)) && a < b;
        });
        for (std::int64_t n = 0; n < k_; ++n) {
          const std::int64_t at = (o * k_ + n) * inner + i;
          if (values != nullptr) {
            values[at] = row[order[n] * inner];
          }
          if (indices != nullptr) {
            indices[at] = order[n];
          }
        }
      }
    }
    return {};
  }

 private:
  Along shape_;
  std::int64_t k_;
  bool largest_;
};

Result<std::unique_ptr<Kernel>> top_k_kernel(KernelContext& context) {
  const std::int64_t axis = context.node().get_int("axis", -1);
  const Along shape = along(context.input(0).dims, axis);
  const std::int64_t k = context.node().opset >= 10 ? context.constant(1)->as_int(0) : context.node().get_int("k", 0);
  const bool largest = context.node().get_int("largest", 1) != 0;
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    return Result<std::unique_ptr<Kernel>>(std::make_unique<TopK<typename decltype(tag)::type>>(shape, k, largest));
  });
}

}  // namespace

void register_ranking(Registry& registry) {
  const auto arg = [&](const char* op, int first, int last, const char* attributes, MakeKernel kernel) {
    registry.add({.op = op,
                  .first = first,
                  .last = last,
                  .inputs = "data:T",
                  .outputs = "reduced:I",
                  .attributes = attributes,
                  .types = {{"T", kNumbers}, {"I", kInt64s}},
                  .infer = infer_arg,
                  .kernel = kernel});
  };
  arg("ArgMax", 7, 11, "axis:int, keepdims:int", arg_kernel<true>);
  arg("ArgMax", 12, 17, "axis:int, keepdims:int, select_last_index:int", arg_kernel<true>);
  arg("ArgMin", 7, 11, "axis:int, keepdims:int", arg_kernel<false>);
  arg("ArgMin", 12, 17, "axis:int, keepdims:int, select_last_index:int", arg_kernel<false>);
  registry.add({.op = "TopK",
                .last = 9,
                .inputs = "X:T",
                .outputs = "Values:T, Indices:I",
                .attributes = "axis:int, k:int!",
                .types = {{"T", kFloats}, {"I", kInt64s}},
                .infer = infer_top_k,
                .kernel = top_k_kernel});
  registry.add({.op = "TopK",
                .first = 10,
                .last = 10,
                .inputs = "X:T, K:I",
                .outputs = "Values:T, Indices:I",
                .attributes = "axis:int",
                .types = {{"T", kFloats}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_top_k,
                .kernel = top_k_kernel});
  registry.add({.op = "TopK",
                .first = 11,
                .inputs = "X:T, K:I",
                .outputs = "Values:T, Indices:I",
                .attributes = "axis:int, largest:int, sorted:int",
                .types = {{"T", kNumbers}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_top_k,
                .kernel = top_k_kernel});
}

}  // namespace sluice::engine
