// Operators that pick and rearrange elements along axes.
#include <algorithm>
#include <cstring>
#include <limits>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// Elements before and behind an axis.
std::pair<std::int64_t, std::int64_t> around(const Dims& dims, std::int64_t axis) {
  return {element_count(Dims(dims.begin(), dims.begin() + axis)),
          element_count(Dims(dims.begin() + axis + 1, dims.end()))};
}

std::int64_t checked_axis(const KernelContext& context, const char* name, std::int64_t fallback) {
  const std::int64_t axis = context.node().get_int(name, fallback);
  return axis < 0 ? axis + static_cast<std::int64_t>(context.input(0).dims.size()) : axis;
}

// A tensor as another one sees it: each dimension of the result is a walk through the input with a stride.
template <class T>
Result<std::unique_ptr<Kernel>> strided_copy(Dims dims, Dims strides, std::int64_t start) {
  if (dims.empty()) {
    dims = {1};
    strides = {0};
  }
  return make_kernel([dims = std::move(dims), strides = std::move(strides), start](const KernelRun& run) {
    if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
      return;
    }
    const T* in = run.inputs[0].as<T>() + start;
    T* out = run.outputs[0].out<T>();
    std::int64_t index[kMaxRank] = {};
    const std::size_t last = dims.size() - 1;
    while (true) {
      const std::int64_t length = dims[last], step = strides[last];
      if (step == 1) {
        std::memcpy(out, in, static_cast<std::size_t>(length) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < length; ++i) {
          out[i] = in[i * step];
        }
      }
      out += length;
      std::size_t d = last;
      while (d > 0) {
        --d;
        in += strides[d];
        if (++index[d] < dims[d]) {
          break;
        }
        in -= strides[d] * dims[d];
        index[d] = 0;
        if (d == 0) {
          return;
        }
      }
      if (last == 0) {
        return;
      }
    }
  });
}

// ---- Transpose ----

std::vector<std::int64_t> permutation_of(const Node& node, std::int64_t rank) {
  std::vector<std::int64_t> reversed;
  for (std::int64_t i = rank; i-- > 0;) {
    reversed.push_back(i);
  }
  return node.get_ints("perm", reversed);
}

Status infer_transpose(ShapeContext& context) {
  const auto permutation = permutation_of(context.node(), context.rank(0));
  auto sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  bool valid = static_cast<std::int64_t>(sorted.size()) == context.rank(0);
  for (std::size_t i = 0; valid && i < sorted.size(); ++i) {
    valid = sorted[i] == static_cast<std::int64_t>(i);
  }
  if (!valid) {
    return context.error(Code::kInvalidArgument, "perm %s is no permutation of %lld dimensions",
                         to_string(permutation).c_str(), static_cast<long long>(context.rank(0)));
  }
  Dims dims;
  for (const std::int64_t from : permutation) {
    dims.push_back(context.dims(0)[static_cast<std::size_t>(from)]);
  }
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> transpose_kernel(KernelContext& context) {
  const Dims& in = context.input(0).dims;
  const Dims own = strides_of(in);
  Dims strides;
  for (const std::int64_t from : permutation_of(context.node(), static_cast<std::int64_t>(in.size()))) {
    strides.push_back(own[static_cast<std::size_t>(from)]);
  }
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    return strided_copy<typename decltype(tag)::type>(context.output(0).dims, strides, 0);
  });
}

// ---- Slice: attributes until opset 9, inputs since ----

struct SliceRange {
  std::int64_t start = 0, step = 1, count = 0;
};

// Of each dimension. Bounds clamp as numpy's do.
Result<std::vector<SliceRange>> ranges_of(const Node& node, const Dims& in, const std::vector<std::int64_t>& starts,
                                          const std::vector<std::int64_t>& ends, std::vector<std::int64_t> axes,
                                          std::vector<std::int64_t> steps) {
  const auto rank = static_cast<std::int64_t>(in.size());
  const auto wrong = [&](const char* what) {
    return Status::error(Code::kInvalidArgument, "%s: %s", describe(node).c_str(), what);
  };
  for (std::size_t i = axes.size(); axes.size() < starts.size(); ++i) {
    axes.push_back(static_cast<std::int64_t>(i));
  }
  steps.resize(steps.empty() ? starts.size() : steps.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return wrong("starts, ends, axes and steps differ in length");
  }
  std::vector<SliceRange> ranges;
  for (const std::int64_t dim : in) {
    ranges.push_back({0, 1, dim});
  }
  std::vector<bool> seen(in.size(), false);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank || steps[i] == 0 || steps[i] == std::numeric_limits<std::int64_t>::min()) {
      return wrong("an axis that the tensor does not have, or a step of 0");
    }
    if (seen[static_cast<std::size_t>(axis)]) {
      return wrong("an axis that is named twice");
    }
    seen[static_cast<std::size_t>(axis)] = true;
    const std::int64_t dim = in[static_cast<std::size_t>(axis)], step = steps[i];
    const auto clamp = [&](std::int64_t value) {
      value = value < 0 ? value + dim : value;
      return step > 0 ? std::clamp(value, std::int64_t{0}, dim) : std::clamp(value, std::int64_t{-1}, dim - 1);
    };
    const std::int64_t start = clamp(starts[i]), end = clamp(ends[i]);
    const std::int64_t span = step > 0 ? end - start : start - end;
    const std::int64_t size = step > 0 ? step : -step;
    ranges[static_cast<std::size_t>(axis)] = {start, step, span <= 0 ? 0 : (span - 1) / size + 1};
  }
  return ranges;
}

template <class Ints>
Result<std::vector<SliceRange>> slice_ranges(const Node& node, const Dims& in, Ints&& ints) {
  std::vector<std::int64_t> parts[4] = {node.get_ints("starts"), node.get_ints("ends"), node.get_ints("axes"), {}};
  for (std::size_t i = 0; i < 4; ++i) {
    if (node.has_input(i + 1)) {
      auto values = ints(i + 1);
      if (!values.ok()) {
        return values.status();
      }
      parts[i] = std::move(*values);
    }
  }
  return ranges_of(node, in, parts[0], parts[1], parts[2], parts[3]);
}

Status infer_slice(ShapeContext& context) {
  auto ranges = slice_ranges(context.node(), context.dims(0), [&](std::size_t i) { return context.ints(i); });
  if (!ranges.ok()) {
    return ranges.status();
  }
  Dims dims;
  for (const SliceRange& range : *ranges) {
    dims.push_back(range.count);
  }
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> slice_kernel(KernelContext& context) {
  auto ranges = slice_ranges(context.node(), context.input(0).dims, [&](std::size_t i) {
    return Result<std::vector<std::int64_t>>(int_values(*context.constant(i)));
  });
  if (!ranges.ok()) {
    return ranges.status();
  }
  const Dims own = strides_of(context.input(0).dims);
  Dims strides;
  std::int64_t start = 0;
  for (std::size_t d = 0; d < own.size(); ++d) {
    // A single step is never walked further, and may be too large to multiply.
    strides.push_back((*ranges)[d].count > 1 ? own[d] * (*ranges)[d].step : 0);
    start += (*ranges)[d].count > 0 ? own[d] * (*ranges)[d].start : 0;
  }
  return dispatch_sizes(context.output(0).dtype, [&](auto tag) {
    return strided_copy<typename decltype(tag)::type>(context.output(0).dims, strides, start);
  });
}

// ---- Concat, Split ----

Status infer_concat(ShapeContext& context) {
  auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  Dims dims = context.dims(0);
  const auto along = static_cast<std::size_t>(*axis);
  for (std::size_t i = 1; i < context.input_count(); ++i) {
    Dims other = context.dims(i);
    if (other.size() != dims.size()) {
      return context.error(Code::kInvalidArgument, "%s and %s do not concatenate", to_string(dims).c_str(),
                           to_string(other).c_str());
    }
    const std::int64_t sum = dims[along] + other[along];
    other[along] = dims[along];
    if (other != dims) {
      return context.error(Code::kInvalidArgument, "%s and %s do not concatenate along axis %zu",
                           to_string(dims).c_str(), to_string(context.dims(i)).c_str(), along);
    }
    dims[along] = sum;
  }
  return context.set(0, std::move(dims));
}

// Blocks of bytes, one an outer index, between one whole tensor and its parts along an axis.
struct Parts {
  std::int64_t outer = 0;
  std::vector<std::size_t> bytes;  // of a part's block
};

Result<std::unique_ptr<Kernel>> concat_kernel(KernelContext& context) {
  const std::int64_t axis = checked_axis(context, "axis", 0);
  const auto [outer, inner] = around(context.output(0).dims, axis);
  Parts parts{outer, {}};
  for (std::size_t i = 0; i < context.input_count(); ++i) {
    parts.bytes.push_back(static_cast<std::size_t>(context.input(i).dims[static_cast<std::size_t>(axis)] * inner) *
                          dtype_bytes(context.output(0).dtype));
  }
  return make_kernel([parts](const KernelRun& run) {
    auto* out = run.outputs[0].out<std::byte>();
    for (std::int64_t o = 0; o < parts.outer; ++o) {
      for (std::size_t i = 0; i < parts.bytes.size(); ++i) {
        if (parts.bytes[i] > 0) {
          std::memcpy(out, run.inputs[i].as<std::byte>() + static_cast<std::size_t>(o) * parts.bytes[i],
                      parts.bytes[i]);
          out += parts.bytes[i];
        }
      }
    }
  });
}

Status infer_split(ShapeContext& context) {
  auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  const std::size_t count = context.node().outputs.size();
  const std::int64_t dim = context.dims(0)[static_cast<std::size_t>(*axis)];
  std::vector<std::int64_t> sizes = context.node().get_ints("split");
  if (context.has_input(1)) {
    auto values = context.ints(1);
    if (!values.ok()) {
      return values.status();
    }
    sizes = std::move(*values);
  } else if (!context.node().has("split") && dim % static_cast<std::int64_t>(count) == 0) {
    sizes.assign(count, dim / static_cast<std::int64_t>(count));
  }
  std::int64_t sum = 0;
  bool valid = sizes.size() == count;
  for (const std::int64_t size : sizes) {
    valid = valid && size >= 0 && size <= dim;
    sum += valid ? size : 0;
  }
  if (!valid || sum != dim) {
    return context.error(Code::kInvalidArgument, "%lld elements do not split into %zu parts of %s",
                         static_cast<long long>(dim), count, to_string(sizes).c_str());
  }
  for (std::size_t i = 0; i < count; ++i) {
    Dims dims = context.dims(0);
    dims[static_cast<std::size_t>(*axis)] = sizes[i];
    if (Status status = context.set(i, std::move(dims)); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status check_split(const Node& node) {
  for (const ValueId id : node.outputs) {
    if (id == kNoValue) {
      return refuse(node, "an output is left out", "export the model with all outputs named");
    }
  }
  return {};
}

Result<std::unique_ptr<Kernel>> split_kernel(KernelContext& context) {
  const std::int64_t axis = checked_axis(context, "axis", 0);
  const auto [outer, inner] = around(context.input(0).dims, axis);
  Parts parts{outer, {}};
  for (std::size_t i = 0; i < context.node().outputs.size(); ++i) {
    parts.bytes.push_back(static_cast<std::size_t>(context.output(i).dims[static_cast<std::size_t>(axis)] * inner) *
                          dtype_bytes(context.output(0).dtype));
  }
  return make_kernel([parts](const KernelRun& run) {
    const auto* in = run.inputs[0].as<std::byte>();
    for (std::int64_t o = 0; o < parts.outer; ++o) {
      for (std::size_t i = 0; i < parts.bytes.size(); ++i) {
        if (parts.bytes[i] > 0) {
          std::memcpy(run.outputs[i].out<std::byte>() + static_cast<std::size_t>(o) * parts.bytes[i], in,
                      parts.bytes[i]);
          in += parts.bytes[i];
        }
      }
    }
  });
}

// ---- Gather ----

Status infer_gather(ShapeContext& context) {
  auto axis = context.axis(context.node().get_int("axis", 0), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  const Dims &data = context.dims(0), &indices = context.dims(1);
  Dims dims(data.begin(), data.begin() + *axis);
  dims.insert(dims.end(), indices.begin(), indices.end());
  dims.insert(dims.end(), data.begin() + *axis + 1, data.end());
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> gather_kernel(KernelContext& context) {
  const std::int64_t axis = checked_axis(context, "axis", 0);
  const Dims& data = context.input(0).dims;
  const auto sizes = around(data, axis);  // not by name: clang takes no structured binding into a lambda
  const std::int64_t outer = sizes.first, inner = sizes.second;
  const std::int64_t dim = data[static_cast<std::size_t>(axis)];
  const std::int64_t count = element_count(context.input(1).dims);
  const std::size_t block = static_cast<std::size_t>(inner) * dtype_bytes(context.output(0).dtype);
  const Status error = context.error(Code::kInvalidArgument, "an index is outside [-%lld, %lld)",
                                     static_cast<long long>(dim), static_cast<long long>(dim));
  const auto make = [&](auto tag) {
    using I = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) -> Status {
      const I* indices = run.inputs[1].as<I>();
      const auto* in = run.inputs[0].as<std::byte>();
      auto* out = run.outputs[0].out<std::byte>();
      for (std::int64_t i = 0; i < count; ++i) {
        if (indices[i] < -dim || indices[i] >= dim) {
          return error;
        }
      }
      if (block == 0) {
        return {};
      }
      for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t i = 0; i < count; ++i, out += block) {
          const std::int64_t index = indices[i] < 0 ? indices[i] + dim : indices[i];
          std::memcpy(out, in + static_cast<std::size_t>(o * dim + index) * block, block);
        }
      }
      return {};
    });
  };
  return context.input(1).dtype == DType::kInt32 ? make(TypeTag<std::int32_t>()) : make(TypeTag<std::int64_t>());
}

}  // namespace

void register_data_movement(Registry& registry) {
  registry.add({.op = "Transpose",
                .inputs = "data:T",
                .outputs = "transposed:T",
                .attributes = "perm:ints",
                .types = {{"T", kAllTypes}},
                .infer = infer_transpose,
                .kernel = transpose_kernel});
  registry.add({.op = "Slice",
                .last = 9,
                .inputs = "data:T",
                .outputs = "output:T",
                .attributes = "starts:ints!, ends:ints!, axes:ints",
                .types = {{"T", kAllTypes}},
                .infer = infer_slice,
                .kernel = slice_kernel});
  registry.add({.op = "Slice",
                .first = 10,
                .inputs = "data:T, starts:I, ends:I, axes:I?, steps:I?",
                .outputs = "output:T",
                .types = {{"T", kAllTypes}, {"I", kIndices}},
                .shape_inputs = {1, 2, 3, 4},
                .infer = infer_slice,
                .kernel = slice_kernel});
  registry.add({.op = "Concat",
                .inputs = "inputs:T*",
                .outputs = "concat_result:T",
                .attributes = "axis:int!",
                .types = {{"T", kAllTypes}},
                .infer = infer_concat,
                .kernel = concat_kernel});
  registry.add({.op = "Split",
                .last = 12,
                .inputs = "input:T",
                .outputs = "outputs:T*",
                .attributes = "axis:int, split:ints",
                .types = {{"T", kAllTypes}},
                .infer = infer_split,
                .kernel = split_kernel,
                .check = check_split});
  registry.add({.op = "Split",
                .first = 13,
                .inputs = "input:T, split:I?",
                .outputs = "outputs:T*",
                .attributes = "axis:int",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_split,
                .kernel = split_kernel,
                .check = check_split});
  registry.add({.op = "Gather",
                .inputs = "data:T, indices:I",
                .outputs = "output:T",
                .attributes = "axis:int",
                .types = {{"T", kAllTypes}, {"I", kIndices}},
                .infer = infer_gather,
                .kernel = gather_kernel});
}

}  // namespace sluice::engine
