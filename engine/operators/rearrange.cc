// Operators that rearrange, mask or mark elements by position: CumSum, Trilu, EyeLike, OneHot, DepthToSpace,
// SpaceToDepth, ReverseSequence.
#include <algorithm>
#include <cstring>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status infer_same(ShapeContext& context) { return context.set(0, context.dims(0)); }

// ---- CumSum ----

Result<std::int64_t> one_int(const ShapeContext& context, std::size_t input) {
  auto values = context.ints(input);
  if (!values.ok()) {
    return values.status();
  }
  if (values->size() != 1) {
    return context.error(Code::kInvalidArgument, "input %zu must be one number", input);
  }
  return values->front();
}

Status infer_cum_sum(ShapeContext& context) {
  auto value = one_int(context, 1);
  if (!value.ok()) {
    return value.status();
  }
  auto axis = context.axis(*value, context.rank(0));
  return axis.ok() ? infer_same(context) : axis.status();
}

Result<std::unique_ptr<Kernel>> cum_sum_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  std::int64_t axis = context.constant(1)->as_int(0);
  axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
  const std::int64_t inner = element_count(Dims(dims.begin() + axis + 1, dims.end()));
  const std::int64_t length = dims[static_cast<std::size_t>(axis)];
  const std::int64_t outer = element_count(Dims(dims.begin(), dims.begin() + axis));
  const bool exclusive = context.node().get_int("exclusive", 0) != 0;
  const bool reverse = context.node().get_int("reverse", 0) != 0;
  return dispatch_numbers(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      using C = std::conditional_t<kIsFloating<T>, ComputeType<T>, std::uint64_t>;  // integers wrap
      for (std::int64_t row = 0; row < outer * inner; ++row) {
        const std::int64_t start = row / inner * length * inner + row % inner;
        C sum{};
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t at = start + (reverse ? length - 1 - i : i) * inner;
          // NOLINTNEXTLINE(bugprone-signed-char-misuse): int8 is a number
          const C value = static_cast<C>(run.inputs[0].as<T>()[at]);
          run.outputs[0].out<T>()[at] = static_cast<T>(exclusive ? sum : sum + value);
          sum += value;
        }
      }
    });
  });
}

// ---- Trilu ----

Status infer_trilu(ShapeContext& context) {
  if (context.rank(0) < 2) {
    return context.error(Code::kInvalidArgument, "it needs a matrix, not %s", to_string(context.dims(0)).c_str());
  }
  if (context.has_input(1)) {
    if (auto k = one_int(context, 1); !k.ok()) {
      return k.status();
    }
  }
  return infer_same(context);
}

Result<std::unique_ptr<Kernel>> trilu_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  const std::int64_t rows = dims[dims.size() - 2], columns = dims.back();
  const std::int64_t matrices = element_count(Dims(dims.begin(), dims.end() - 2));
  const bool upper = context.node().get_int("upper", 1) != 0;
  // Beyond these no element changes sides, and sums do not overflow.
  const std::int64_t k = context.has_input(1) ? std::clamp(context.constant(1)->as_int(0), -rows - 1, columns + 1) : 0;
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      const T* in = run.inputs[0].as<T>();
      T* out = run.outputs[0].out<T>();
      for (std::int64_t row = 0; row < matrices * rows; ++row, in += columns, out += columns) {
        // [first, last) of the row is kept.
        const std::int64_t diagonal = row % rows + k;
        const std::int64_t first = upper ? std::clamp(diagonal, std::int64_t{0}, columns) : 0;
        const std::int64_t last = upper ? columns : std::clamp(diagonal + 1, std::int64_t{0}, columns);
        std::fill_n(out, columns, T{0});
        std::copy(in + first, in + last, out + first);
      }
    });
  });
}

// ---- EyeLike ----

DType eye_type(const Node& node, DType first_input) {
  if (!node.has("dtype")) {
    return first_input;
  }
  const std::int64_t dtype = node.get_int("dtype", 0);
  return dtype > 0 && dtype <= 16 ? static_cast<DType>(dtype) : DType::kUndefined;
}

Status infer_eye(ShapeContext& context) {
  return context.rank(0) == 2
             ? infer_same(context)
             : context.error(Code::kInvalidArgument, "it needs a matrix, not %s", to_string(context.dims(0)).c_str());
}

Result<std::unique_ptr<Kernel>> eye_kernel(KernelContext& context) {
  const std::int64_t rows = context.output(0).dims[0], columns = context.output(0).dims[1];
  const std::int64_t k = std::clamp(context.node().get_int("k", 0), -rows - 1, columns + 1);
  return dispatch_numbers(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      T* out = run.outputs[0].out<T>();
      std::fill_n(out, rows * columns, static_cast<T>(ComputeType<T>{0}));
      for (std::int64_t row = std::max(-k, std::int64_t{0}); row < rows && row + k < columns; ++row) {
        out[row * columns + row + k] = static_cast<T>(ComputeType<T>{1});
      }
    });
  });
}

// ---- OneHot ----

Result<std::int64_t> depth_of(const Node& node, const Tensor* tensor) {
  const double depth = tensor != nullptr && tensor->elements() == 1 ? tensor->as_double(0) : 0;
  if (!(depth >= 1) || depth > 0x1p40) {
    return Status::error(Code::kInvalidArgument, "%s: depth must be one number above 0", describe(node).c_str());
  }
  return static_cast<std::int64_t>(depth);
}

Status infer_one_hot(ShapeContext& context) {
  if (context.constant(1) == nullptr) {
    return context.ints(1).status();
  }
  auto depth = depth_of(context.node(), context.constant(1));
  if (!depth.ok()) {
    return depth.status();
  }
  auto axis = context.axis(context.node().get_int("axis", -1), context.rank(0) + 1);
  if (!axis.ok()) {
    return axis.status();
  }
  if (context.dims(2) != Dims{2}) {
    return context.error(Code::kInvalidArgument, "values must be two numbers");
  }
  Dims dims = context.dims(0);
  dims.insert(dims.begin() + *axis, *depth);
  return context.set(0, std::move(dims));
}

using LoadIndex = std::int64_t (*)(const void* data, std::int64_t i);

Result<std::unique_ptr<Kernel>> one_hot_kernel(KernelContext& context) {
  const Dims& in = context.input(0).dims;
  std::int64_t axis = context.node().get_int("axis", -1);
  axis += axis < 0 ? static_cast<std::int64_t>(in.size()) + 1 : 0;
  const std::int64_t inner = element_count(Dims(in.begin() + axis, in.end())), count = element_count(in);
  const std::int64_t depth = context.output(0).dims[static_cast<std::size_t>(axis)];
  const bool wraps = context.node().opset >= 11;
  const LoadIndex load = dispatch_numbers(context.input(0).dtype, [](auto tag) -> LoadIndex {
    using T = typename decltype(tag)::type;
    return [](const void* data, std::int64_t i) -> std::int64_t {
      const T value = static_cast<const T*>(data)[i];
      if constexpr (kIsFloating<T>) {  // what is no index of any tensor marks nothing
        const auto x = static_cast<double>(value);
        return x > -0x1p40 && x < 0x1p40 ? static_cast<std::int64_t>(x) : -(std::int64_t{1} << 40) - 1;
      } else {
        return static_cast<std::int64_t>(value);
      }
    };
  });
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      const T off = run.inputs[2].as<T>()[0], on = run.inputs[2].as<T>()[1];
      T* out = run.outputs[0].out<T>();
      std::fill_n(out, count * depth, off);
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t index = load(run.inputs[0].data, i);
        index += index < 0 && wraps && index >= -depth ? depth : 0;
        if (index >= 0 && index < depth) {
          out[(i / inner * depth + index) * inner + i % inner] = on;
        }
      }
    });
  });
}

// ---- DepthToSpace, SpaceToDepth: [N, C, H, W] ----

struct Blocks {
  std::int64_t n = 0, c = 0, h = 0, w = 0, b = 0;  // b x b blocks; c, h, w of the deep side: c * b * b channels
};

Status infer_blocks(ShapeContext& context) {
  const Dims& in = context.dims(0);
  const std::int64_t b = context.node().get_int("blocksize", 0);
  if (in.size() != 4 || b < 1 || b > 1 << 20) {
    return context.error(Code::kInvalidArgument, "it takes [N, C, H, W] and a blocksize above 0, not %s",
                         to_string(in).c_str());
  }
  const bool to_space = context.node().op == "DepthToSpace";
  if (to_space ? in[1] % (b * b) != 0 : in[2] % b != 0 || in[3] % b != 0) {
    return context.error(Code::kInvalidArgument, "%s is not made of blocks of %lld", to_string(in).c_str(),
                         static_cast<long long>(b));
  }
  return context.set(0, to_space ? Dims{in[0], in[1] / (b * b), in[2] * b, in[3] * b}
                                 : Dims{in[0], in[1] * b * b, in[2] / b, in[3] / b});
}

template <bool kToSpace>
Result<std::unique_ptr<Kernel>> blocks_kernel(KernelContext& context) {
  const std::int64_t b = context.node().get_int("blocksize", 1);
  const Dims& deep = kToSpace ? context.input(0).dims : context.output(0).dims;
  const Blocks blocks{deep[0], deep[1] / (b * b), deep[2], deep[3], b};
  const bool columns_first = context.node().get_string("mode", "DCR") == "CRD";
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([blocks, columns_first](const KernelRun& run) {
      const auto [n, c, h, w, size] = blocks;
      const T* in = run.inputs[0].as<T>();
      T* out = run.outputs[0].out<T>();
      for (std::int64_t wide = 0; wide < n * c * h * size * w * size; ++wide) {
        const std::int64_t x = wide % (w * size), y = wide / (w * size) % (h * size);
        const std::int64_t channel = wide / (w * size * h * size) % c, image = wide / (w * size * h * size * c);
        const std::int64_t block = y % size * size + x % size;
        const std::int64_t plane = columns_first ? channel * size * size + block : block * c + channel;
        const std::int64_t deep_at = ((image * c * size * size + plane) * h + y / size) * w + x / size;
        out[kToSpace ? wide : deep_at] = in[kToSpace ? deep_at : wide];
      }
    });
  });
}

Status check_mode(const Node& node) {
  const std::string mode = node.get_string("mode", "DCR");
  return mode == "DCR" || mode == "CRD" ? Status()
                                        : refuse(node, "its mode is neither DCR nor CRD", "use one of these");
}

// ---- ReverseSequence ----

Status check_reverse(const Node& node) {
  const std::int64_t batch = node.get_int("batch_axis", 1), time = node.get_int("time_axis", 0);
  return (batch == 0 && time == 1) || (batch == 1 && time == 0)
             ? Status()
             : Status::error(Code::kInvalidArgument, "%s: batch_axis and time_axis must be 0 and 1, in either order",
                             describe(node).c_str());
}

Status infer_reverse(ShapeContext& context) {
  const auto batch = static_cast<std::size_t>(context.node().get_int("batch_axis", 1));
  if (context.rank(0) < 2 || context.dims(1) != Dims{context.dims(0)[batch]}) {
    return context.error(Code::kInvalidArgument, "lengths of shape %s do not fit %s",
                         to_string(context.dims(1)).c_str(), to_string(context.dims(0)).c_str());
  }
  return infer_same(context);
}

Result<std::unique_ptr<Kernel>> reverse_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  const bool batch_first = context.node().get_int("batch_axis", 1) == 0;
  const std::int64_t batches = dims[batch_first ? 0 : 1], times = dims[batch_first ? 1 : 0];
  const std::int64_t batch_step = batch_first ? times : 1, time_step = batch_first ? 1 : batches;
  const std::size_t bytes = static_cast<std::size_t>(element_count(Dims(dims.begin() + 2, dims.end()))) *
                            dtype_bytes(context.output(0).dtype);
  const Status error =
      context.error(Code::kInvalidArgument, "a length is outside [0, %lld]", static_cast<long long>(times));
  return make_kernel([=](const KernelRun& run) -> Status {
    for (std::int64_t b = 0; b < batches; ++b) {
      const std::int64_t length = run.inputs[1].as<std::int64_t>()[b];
      if (length < 0 || length > times) {
        return error;
      }
      for (std::int64_t t = 0; t < times && bytes > 0; ++t) {
        const std::int64_t from = t < length ? length - 1 - t : t;
        std::memcpy(run.outputs[0].out<std::byte>() + static_cast<std::size_t>(b * batch_step + t * time_step) * bytes,
                    run.inputs[0].as<std::byte>() + static_cast<std::size_t>(b * batch_step + from * time_step) * bytes,
                    bytes);
      }
    }
    return {};
  });
}

constexpr TypeSet kSummed = kFloats | types_of({DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64});

}  // namespace

void register_rearrange(Registry& registry) {
  registry.add({.op = "CumSum",
                .first = 11,
                .inputs = "x:T, axis:I",
                .outputs = "y:T",
                .attributes = "exclusive:int, reverse:int",
                .types = {{"T", kSummed}, {"I", kIndices}},
                .shape_inputs = {1},
                .infer = infer_cum_sum,
                .kernel = cum_sum_kernel});
  registry.add({.op = "Trilu",
                .first = 14,
                .inputs = "input:T, k:I?",
                .outputs = "output:T",
                .attributes = "upper:int",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_trilu,
                .kernel = trilu_kernel});
  registry.add({.op = "EyeLike",
                .first = 9,
                .inputs = "input:T1",
                .outputs = "output:T2",
                .attributes = "dtype:int, k:int",
                .types = {{"T1", kAllTypes}, {"T2", kAllTypes}},
                .infer = infer_eye,
                .kernel = eye_kernel,
                .output_type = eye_type,
                .shape_only = true});
  registry.add({.op = "OneHot",
                .first = 9,
                .inputs = "indices:T1, depth:T2, values:T3",
                .outputs = "output:T3",
                .attributes = "axis:int",
                .types = {{"T1", kNumbers}, {"T2", kNumbers}, {"T3", kAllTypes}},
                .shape_inputs = {1},
                .infer = infer_one_hot,
                .kernel = one_hot_kernel});
  const auto blocks = [&](const char* op, int first, int last, const char* attributes, MakeKernel kernel) {
    registry.add({.op = op,
                  .first = first,
                  .last = last,
                  .inputs = "input:T",
                  .outputs = "output:T",
                  .attributes = attributes,
                  .types = {{"T", kAllTypes}},
                  .infer = infer_blocks,
                  .kernel = kernel,
                  .check = check_mode});
  };
  blocks("DepthToSpace", 7, 10, "blocksize:int!", blocks_kernel<true>);
  blocks("DepthToSpace", 11, 17, "blocksize:int!, mode:string", blocks_kernel<true>);
  blocks("SpaceToDepth", 7, 17, "blocksize:int!", blocks_kernel<false>);
  registry.add({.op = "ReverseSequence",
                .first = 10,
                .inputs = "input:T, sequence_lens:I",
                .outputs = "Y:T",
                .attributes = "batch_axis:int, time_axis:int",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .infer = infer_reverse,
                .kernel = reverse_kernel,
                .check = check_reverse});
}

}  // namespace sluice::engine
