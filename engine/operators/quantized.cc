// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include <algorithm>
#include <cmath>

#include "operators/lambda_kernel.h"
#include "operators/registry.h"
#include "operators/saturate.h"

namespace sluice::engine {
namespace {

// A tensor as lines that share a scale: [outer, channels, inner].
struct Channels {
  std::int64_t outer = 1, channels = 1, inner = 1;
};

// One scale for all, or one for each index of `axis`, which is only known since opset 13. Errors: kInvalidArgument.
Result<Channels> channels_of(const Node& node, const Dims& dims, const Dims& scale) {
  Channels result;
  if (scale.empty() || scale == Dims{1}) {
    result.inner = element_count(dims);
    return result;
  }
  const auto rank = static_cast<std::int64_t>(dims.size());
  std::int64_t axis = node.get_int("axis", 1);
  axis += axis < 0 ? rank : 0;
  if (node.opset < 13 || axis < 0 || axis >= rank || scale != Dims{dims[static_cast<std::size_t>(axis)]}) {
    return Status::error(Code::kInvalidArgument, "%s: a scale of shape %s for %s", describe(node).c_str(),
                         to_string(scale).c_str(), to_string(dims).c_str());
  }
  result.outer = element_count(Dims(dims.begin(), dims.begin() + axis));
  result.channels = dims[static_cast<std::size_t>(axis)];
  result.inner = element_count(Dims(dims.begin() + axis + 1, dims.end()));
  return result;
}

Status infer_linear(ShapeContext& context) {
  if (auto channels = channels_of(context.node(), context.dims(0), context.dims(1)); !channels.ok()) {
    return channels.status();
  }
  if (context.has_input(2) && element_count(context.dims(2)) != element_count(context.dims(1))) {
    return context.error(Code::kInvalidArgument, "a zero point of shape %s for a scale of shape %s",
                         to_string(context.dims(2)).c_str(), to_string(context.dims(1)).c_str());
  }
  return context.set(0, context.dims(0));
}

// Calls f(i, channel) for each element.
template <class F>
void for_each(const Channels& s, F f) {
  std::int64_t i = 0;
  for (std::int64_t line = 0; line < s.outer * s.channels; ++line) {
    for (std::int64_t end = i + s.inner; i < end; ++i) {
      f(i, line % s.channels);
    }
  }
}

template <class X, class Y>
Result<std::unique_ptr<Kernel>> quantize(const Channels& s) {
  return make_kernel([s](const KernelRun& run) {
    const X* x = run.inputs[0].as<X>();
    const auto* scale = run.inputs[1].as<float>();
    const Y* zero = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<Y>() : nullptr;
    Y* y = run.outputs[0].out<Y>();
    for_each(s, [&](std::int64_t i, std::int64_t c) {
      y[i] = saturate<Y>(static_cast<float>(x[i]) / scale[c], zero != nullptr ? zero[c] : 0);
    });
  });
}

Result<std::unique_ptr<Kernel>> quantize_kernel(KernelContext& context) {
  auto s = channels_of(context.node(), context.input(0).dims, context.input(1).dims);
  if (!s.ok()) {
    return s.status();
  }
  const bool integers = context.input(0).dtype == DType::kInt32;
  if (context.output(0).dtype == DType::kInt8) {
    return integers ? quantize<std::int32_t, std::int8_t>(*s) : quantize<float, std::int8_t>(*s);
  }
  return integers ? quantize<std::int32_t, std::uint8_t>(*s) : quantize<float, std::uint8_t>(*s);
}

template <class X>
Result<std::unique_ptr<Kernel>> dequantize(const Channels& s) {
  return make_kernel([s](const KernelRun& run) {
    const X* x = run.inputs[0].as<X>();
    const auto* scale = run.inputs[1].as<float>();
    const X* zero = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<X>() : nullptr;
    auto* y = run.outputs[0].out<float>();
    for_each(s, [&](std::int64_t i, std::int64_t c) {
      const std::int64_t shifted = std::int64_t{x[i]} - (zero != nullptr ? zero[c] : 0);
      y[i] = static_cast<float>(shifted) * scale[c];
    });
  });
}

Result<std::unique_ptr<Kernel>> dequantize_kernel(KernelContext& context) {
  auto s = channels_of(context.node(), context.input(0).dims, context.input(1).dims);
  if (!s.ok()) {
    return s.status();
  }
  switch (context.input(0).dtype) {
    case DType::kInt8:
      return dequantize<std::int8_t>(*s);
    case DType::kUint8:
      return dequantize<std::uint8_t>(*s);
    default:
      return dequantize<std::int32_t>(*s);
  }
}

Status infer_dynamic(ShapeContext& context) {
  for (const std::size_t output : {1u, 2u}) {
    if (Status status = context.set(output, {}); !status.ok()) {
      return status;
    }
  }
  return context.set(0, context.dims(0));
}

Result<std::unique_ptr<Kernel>> dynamic_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.input(0).dims);
  return make_kernel([count](const KernelRun& run) {
    const auto* x = run.inputs[0].as<float>();
    float min = 0, max = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      min = std::min(min, x[i]);
      max = std::max(max, x[i]);
    }
    const float scale = max == min ? 1.0f : (max - min) / 255.0f;  // all zeros: any scale will do
    const auto zero = saturate<std::uint8_t>(-min / scale, 0);
    run.outputs[1].out<float>()[0] = scale;
    run.outputs[2].out<std::uint8_t>()[0] = zero;
    auto* y = run.outputs[0].out<std::uint8_t>();
    for (std::int64_t i = 0; i < count; ++i) {
      y[i] = saturate<std::uint8_t>(x[i] / scale, zero);
    }
  });
}

DType unsigned_bytes(const Node&, DType) { return DType::kUint8; }

}  // namespace

void register_quantized(Registry& registry) {
  const TypeSet bytes = types_of({DType::kInt8, DType::kUint8});
  for (const bool axis : {false, true}) {
    const char* const attributes = axis ? "axis:int" : "";
    registry.add({.op = "QuantizeLinear",
                  .first = axis ? 13 : 10,
                  .last = axis ? 17 : 12,
                  .inputs = "x:X, y_scale:S, y_zero_point:Y?",
                  .outputs = "y:Y",
                  .attributes = attributes,
                  .types = {{"X", types_of({DType::kFloat, DType::kInt32})}, {"S", kFloat32}, {"Y", bytes}},
                  .infer = infer_linear,
                  .kernel = quantize_kernel,
                  .output_type = unsigned_bytes});
    registry.add({.op = "DequantizeLinear",
                  .first = axis ? 13 : 10,
                  .last = axis ? 17 : 12,
                  .inputs = "x:X, x_scale:S, x_zero_point:X?",
                  .outputs = "y:S",
                  .attributes = attributes,
                  .types = {{"X", bytes | types_of({DType::kInt32})}, {"S", kFloat32}},
                  .infer = infer_linear,
                  .kernel = dequantize_kernel});
  }
  registry.add({.op = "DynamicQuantizeLinear",
                .first = 11,
                .inputs = "x:X",
                .outputs = "y:Y, y_scale:X, y_zero_point:Y",
                .types = {{"X", kFloat32}, {"Y", types_of({DType::kUint8})}},
                .infer = infer_dynamic,
                .kernel = dynamic_kernel});
}

}  // namespace sluice::engine
