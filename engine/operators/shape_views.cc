// Operators whose result is their input's bytes with other dimensions.
#include <algorithm>
#include <cstring>

#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Result<std::unique_ptr<Kernel>> copy_kernel(KernelContext& context) {
  const std::size_t bytes =
      static_cast<std::size_t>(element_count(context.output(0).dims)) * dtype_bytes(context.output(0).dtype);
  return make_kernel([bytes](const KernelRun& run) {
    if (bytes > 0) {
      std::memcpy(run.outputs[0].data, run.inputs[0].data, bytes);
    }
  });
}

Status infer_identity(ShapeContext& context) { return context.set(0, context.dims(0)); }

Status infer_reshape(ShapeContext& context) {
  auto shape = context.ints(1);
  if (!shape.ok()) {
    return shape.status();
  }
  const Dims& in = context.dims(0);
  const bool allow_zero = context.node().get_int("allowzero", 0) != 0;
  std::int64_t known = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t i = 0; i < shape->size(); ++i) {
    std::int64_t& dim = (*shape)[i];
    if (dim == 0 && !allow_zero) {
      if (i >= in.size()) {
        return context.error(Code::kInvalidArgument, "shape %s takes dimension %zu from %s", to_string(*shape).c_str(),
                             i, to_string(in).c_str());
      }
      dim = in[i];
    }
    if (dim < -1 || (dim == -1 && open >= 0)) {
      return context.error(Code::kInvalidArgument, "shape %s is no shape", to_string(*shape).c_str());
    }
    if (dim == -1) {
      open = static_cast<std::ptrdiff_t>(i);
    } else if (__builtin_mul_overflow(known, dim, &known)) {
      return context.error(Code::kInvalidArgument, "shape %s is too large", to_string(*shape).c_str());
    }
  }
  const std::int64_t count = element_count(in);
  if (open >= 0) {
    if (known == 0 || count % known != 0) {
      return context.error(Code::kInvalidArgument, "%s does not reshape to %s", to_string(in).c_str(),
                           to_string(*shape).c_str());
    }
    (*shape)[static_cast<std::size_t>(open)] = count / known;
  } else if (known != count) {
    return context.error(Code::kInvalidArgument, "%s does not reshape to %s", to_string(in).c_str(),
                         to_string(*shape).c_str());
  }
  return context.set(0, std::move(*shape));
}

// Attribute until opset 12, input since.
Result<std::vector<std::int64_t>> axes_of(ShapeContext& context, std::int64_t rank) {
  std::vector<std::int64_t> axes = context.node().get_ints("axes");
  if (context.has_input(1)) {
    auto values = context.ints(1);
    if (!values.ok()) {
      return values.status();
    }
    axes = std::move(*values);
  }
  for (std::int64_t& value : axes) {
    auto axis = context.axis(value, rank);
    if (!axis.ok()) {
      return axis.status();
    }
    value = *axis;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    return context.error(Code::kInvalidArgument, "axes %s name one twice", to_string(axes).c_str());
  }
  return axes;
}

Status infer_squeeze(ShapeContext& context) {
  const Dims& in = context.dims(0);
  auto axes = axes_of(context, context.rank(0));
  if (!axes.ok()) {
    return axes.status();
  }
  const bool all_ones = !context.node().has("axes") && !context.has_input(1);
  Dims out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool named = std::binary_search(axes->begin(), axes->end(), static_cast<std::int64_t>(i));
    if (named && in[i] != 1) {
      return context.error(Code::kInvalidArgument, "dimension %zu of %s is not 1", i, to_string(in).c_str());
    }
    if (!named && !(all_ones && in[i] == 1)) {
      out.push_back(in[i]);
    }
  }
  return context.set(0, std::move(out));
}

Status infer_unsqueeze(ShapeContext& context) {
  const Dims& in = context.dims(0);
  std::size_t added = context.node().get_ints("axes").size();
  if (context.has_input(1)) {
    auto values = context.ints(1);
    if (!values.ok()) {
      return values.status();
    }
    added = values->size();
  }
  const std::size_t rank = in.size() + added;
  auto axes = axes_of(context, static_cast<std::int64_t>(rank));
  if (!axes.ok()) {
    return axes.status();
  }
  Dims out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const bool named = std::binary_search(axes->begin(), axes->end(), static_cast<std::int64_t>(i));
    out.push_back(named ? 1 : in[next++]);
  }
  return context.set(0, std::move(out));
}

Status infer_flatten(ShapeContext& context) {
  const Dims& in = context.dims(0);
  std::int64_t axis = context.node().get_int("axis", 1);
  if (axis < -context.rank(0) || axis > context.rank(0)) {
    return context.error(Code::kInvalidArgument, "axis %lld of a tensor of %zu dimensions",
                         static_cast<long long>(axis), in.size());
  }
  axis += axis < 0 ? context.rank(0) : 0;
  const Dims rows(in.begin(), in.begin() + axis), columns(in.begin() + axis, in.end());
  return context.set(0, {element_count(rows), element_count(columns)});
}

}  // namespace

void register_shape_views(Registry& registry) {
  const auto view = [&](Operator definition) {
    definition.types.push_back({"T", kAllTypes});
    definition.kernel = copy_kernel;
    definition.view = true;
    registry.add(std::move(definition));
  };
  view({.op = "Identity", .inputs = "input:T", .outputs = "output:T", .infer = infer_identity});
  view({.op = "Flatten", .inputs = "input:T", .outputs = "output:T", .attributes = "axis:int", .infer = infer_flatten});
  view({.op = "Reshape",
        .last = 13,
        .inputs = "data:T, shape:I",
        .outputs = "reshaped:T",
        .types = {{"I", kInt64s}},
        .shape_inputs = {1},
        .infer = infer_reshape});
  view({.op = "Reshape",
        .first = 14,
        .inputs = "data:T, shape:I",
        .outputs = "reshaped:T",
        .attributes = "allowzero:int",
        .types = {{"I", kInt64s}},
        .shape_inputs = {1},
        .infer = infer_reshape});
  view({.op = "Squeeze",
        .last = 12,
        .inputs = "data:T",
        .outputs = "squeezed:T",
        .attributes = "axes:ints",
        .infer = infer_squeeze});
  view({.op = "Squeeze",
        .first = 13,
        .inputs = "data:T, axes:I?",
        .outputs = "squeezed:T",
        .types = {{"I", kInt64s}},
        .shape_inputs = {1},
        .infer = infer_squeeze});
  view({.op = "Unsqueeze",
        .last = 12,
        .inputs = "data:T",
        .outputs = "expanded:T",
        .attributes = "axes:ints!",
        .infer = infer_unsqueeze});
  view({.op = "Unsqueeze",
        .first = 13,
        .inputs = "data:T, axes:I",
        .outputs = "expanded:T",
        .types = {{"I", kInt64s}},
        .shape_inputs = {1},
        .infer = infer_unsqueeze});
}

}  // namespace sluice::engine
