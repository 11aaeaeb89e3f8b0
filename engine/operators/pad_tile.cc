// Pad and Tile.
#include <algorithm>

#include "operators/axis_maps.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 40;  // above any limit of memory: sums of it do not overflow

// ---- Pad: an attribute until opset 10, an input since ----

std::string mode_of(const Node& node) { return node.get_string("mode", "constant"); }

Status check_pad(const Node& node) {
  const std::string mode = mode_of(node);
  return mode == "constant" || mode == "reflect" || mode == "edge"
             ? Status()
             : refuse(node, "mode '" + mode.substr(0, 40) + "' is not supported", "use constant, reflect or edge");
}

Status infer_pad(ShapeContext& context) {
  std::vector<std::int64_t> pads = context.node().get_ints("pads");
  if (context.node().opset >= 11) {
    auto values = context.ints(1);
    if (!values.ok()) {
      return values.status();
    }
    pads = std::move(*values);
  }
  if (context.has_input(2) && element_count(context.dims(2)) != 1) {
    return context.error(Code::kInvalidArgument, "the constant value must be one number");
  }
  Dims dims = context.dims(0);
  const std::size_t rank = dims.size();
  if (pads.size() != 2 * rank) {
    return context.error(Code::kInvalidArgument, "%zu pads for %zu dimensions", pads.size(), rank);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t before = pads[d], behind = pads[rank + d];
    const bool sane = before < kLargest && behind < kLargest && before >= -dims[d] && behind >= -dims[d];
    const std::int64_t left =
        sane ? dims[d] + std::min(before, std::int64_t{0}) + std::min(behind, std::int64_t{0}) : -1;
    const bool grows = before > 0 || behind > 0;
    if (left < 0 || (left == 0 && grows && mode_of(context.node()) != "constant")) {
      return context.error(Code::kInvalidArgument, "pads %s do not fit %s", to_string(pads).c_str(),
                           to_string(context.dims(0)).c_str());
    }
    dims[d] += before + behind;
  }
  return context.set(0, std::move(dims));
}

// Negative pads crop first; what is added then repeats or reflects what is left.
Result<std::unique_ptr<Kernel>> pad_kernel(KernelContext& context) {
  const std::vector<std::int64_t> pads =
      context.node().opset >= 11 ? int_values(*context.constant(1)) : context.node().get_ints("pads");
  const std::string mode = mode_of(context.node());
  const Dims& in = context.input(0).dims;
  AxisMaps maps(in.size());
  for (std::size_t d = 0; d < in.size(); ++d) {
    const std::int64_t first = std::max(-pads[d], std::int64_t{0});
    const std::int64_t last =
        in[d] - std::max(-pads[in.size() + d], std::int64_t{0});  // of what is left: [first, last)
    const std::int64_t period = 2 * std::max(last - first - 1, std::int64_t{1});
    for (std::int64_t i = 0; i < context.output(0).dims[d]; ++i) {
      std::int64_t from = i - pads[d];
      if (from < first || from >= last) {
        if (mode == "constant") {
          from = kNowhere;
        } else if (mode == "edge" || last - first == 1) {
          from = std::clamp(from, first, last - 1);
        } else {
          const std::int64_t at = ((from - first) % period + period) % period;
          from = first + std::min(at, period - at);
        }
      }
      maps[d].push_back(from);
    }
  }
  return axis_map_kernel(context, std::move(maps), context.node().get_float("value", 0.0f), 2);
}

// ---- Tile ----

Status infer_tile(ShapeContext& context) {
  auto repeats = context.ints(1);
  if (!repeats.ok()) {
    return repeats.status();
  }
  Dims dims = context.dims(0);
  if (repeats->size() != dims.size()) {
    return context.error(Code::kInvalidArgument, "%zu repeats for %zu dimensions", repeats->size(), dims.size());
  }
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if ((*repeats)[d] < 0 || __builtin_mul_overflow(dims[d], (*repeats)[d], &dims[d])) {
      return context.error(Code::kInvalidArgument, "repeats %s do not fit %s", to_string(*repeats).c_str(),
                           to_string(context.dims(0)).c_str());
    }
  }
  return context.set(0, std::move(dims));
}

Result<std::unique_ptr<Kernel>> tile_kernel(KernelContext& context) {
  const Dims& in = context.input(0).dims;
  AxisMaps maps(in.size());
  for (std::size_t d = 0; d < in.size(); ++d) {
    for (std::int64_t i = 0; i < context.output(0).dims[d]; ++i) {
      maps[d].push_back(i % in[d]);
    }
  }
  return axis_map_kernel(context, std::move(maps), 0, context.input_count());
}

}  // namespace

void register_pad_tile(Registry& registry) {
  registry.add({.op = "Pad",
                .last = 10,
                .inputs = "data:T",
                .outputs = "output:T",
                .attributes = "pads:ints!, mode:string, value:float",
                .types = {{"T", kFloats}},
                .infer = infer_pad,
                .kernel = pad_kernel,
                .check = check_pad});
  registry.add({.op = "Pad",
                .first = 11,
                .inputs = "data:T, pads:I, constant_value:T?",
                .outputs = "output:T",
                .attributes = "mode:string",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_pad,
                .kernel = pad_kernel,
                .check = check_pad});
  registry.add({.op = "Tile",
                .inputs = "input:T, repeats:I",
                .outputs = "output:T",
                .types = {{"T", kAllTypes}, {"I", kInt64s}},
                .shape_inputs = {1},
                .infer = infer_tile,
                .kernel = tile_kernel});
}

}  // namespace sluice::engine
