// Removes nodes that hand on what they were given: Identity, Dropout, casts to the same type, and reshapes, transposes,
// pads, slices, expansions and concatenations that change nothing; joins a transpose or a reshape with the one before.
#include <algorithm>
#include <climits>
#include <numeric>

#include "operators/registry.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

using Ints = std::vector<std::int64_t>;

std::optional<Ints> constant_ints(const Graph& graph, const Node& node, std::size_t input) {
  if (!node.has_input(input) || !graph.is_constant(node.inputs[input])) {
    return std::nullopt;
  }
  return int_values(*graph.value(node.inputs[input]).constant);
}

bool all_are(const Ints& values, std::int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == wanted; });
}

bool same_shape(const Graph& graph, const Node& node) {
  const Value& from = graph.value(node.inputs[0]);
  const Value& to = graph.value(node.outputs[0]);
  return from.has_shape && to.has_shape && from.type.dims == to.type.dims;
}

// Whether values of the one type all have an exact value in the other.
bool is_widening(DType from, DType to) {
  if (from == DType::kFloat16 || from == DType::kBFloat16) {
    return to == DType::kFloat || to == DType::kDouble;
  }
  if (from == DType::kFloat) {
    return to == DType::kDouble;
  }
  if (from == DType::kBool) {
    return to != DType::kBool;
  }
  return from == DType::kInt32 && to == DType::kInt64;
}

bool slices_everything(const Graph& graph, const Node& node) {
  const bool attributes = node.opset < 10;
  const auto starts = attributes ? std::optional(node.get_ints("starts")) : constant_ints(graph, node, 1);
  const auto ends = attributes ? std::optional(node.get_ints("ends")) : constant_ints(graph, node, 2);
  const auto steps = node.has_input(4) ? constant_ints(graph, node, 4) : std::optional(Ints{});
  // No dimension has more than INT32_MAX elements in practice; exporters write INT32_MAX or INT64_MAX for "the end".
  return starts && ends && steps && all_are(*starts, 0) && all_are(*steps, 1) &&
         std::all_of(ends->begin(), ends->end(), [](std::int64_t end) { return end >= INT64_MAX - 1; });
}

bool pads_nothing(const Graph& graph, const Node& node) {
  const auto pads = node.opset < 11 ? std::optional(node.get_ints("pads")) : constant_ints(graph, node, 1);
  return pads && all_are(*pads, 0);
}

bool is_identity(const Ints& perm) {
  for (std::size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<std::int64_t>(i)) {
      return false;
    }
  }
  return !perm.empty();
}

// Elements stay where they are if only dimensions of one element move.
bool moves_only_ones(const Graph& graph, const Node& node) {
  const Ints perm = node.get_ints("perm");
  const Value& from = graph.value(node.inputs[0]);
  return from.has_shape && perm.size() == from.type.dims.size() && is_identity(perm);
}

// The first output is the first input, and no other output is wanted.
bool hands_on(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.inputs[0] == kNoValue || node.outputs.empty() || node.outputs[0] == kNoValue ||
      std::any_of(node.outputs.begin() + 1, node.outputs.end(), [](ValueId id) { return id != kNoValue; }) ||
      !node.domain.empty()) {
    return false;
  }
  const DType from = graph.value(node.inputs[0]).type.dtype;
  if (node.op == "Identity") {
    return true;
  }
  if (node.op == "Dropout") {
    const auto training = node.has_input(2) ? constant_ints(graph, node, 2) : std::optional(Ints{0});
    return training && all_are(*training, 0);
  }
  if (node.op == "Cast") {
    return static_cast<DType>(node.get_int("to", 0)) == from;
  }
  if (node.op == "Transpose") {
    return is_identity(node.get_ints("perm")) || moves_only_ones(graph, node);
  }
  if (node.op == "Concat" || node.op == "Sum" || node.op == "Max" || node.op == "Min" || node.op == "Mean") {
    return node.inputs.size() == 1;
  }
  if (node.op == "Split") {
    return node.outputs.size() == 1 && same_shape(graph, node);
  }
  if (node.op == "Pad") {
    return pads_nothing(graph, node);
  }
  if (node.op == "Slice") {
    // With steps, a slice may turn a dimension round without changing the shape.
    const auto steps = node.has_input(4) ? constant_ints(graph, node, 4) : std::optional(Ints{});
    return slices_everything(graph, node) || (same_shape(graph, node) && steps && all_are(*steps, 1));
  }
  static constexpr std::string_view kOnlyShape[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"};
  return std::find(std::begin(kOnlyShape), std::end(kOnlyShape), node.op) != std::end(kOnlyShape) &&
         same_shape(graph, node);
}

// Takes every node that hands on out of the way of those behind it. Where its result is a graph output, the node that
// computes its input writes the output instead, if there is one and its own result is no output.
std::size_t bypass(Graph& graph) {
  std::vector<ValueId> stands_for(graph.values.size());
  std::iota(stands_for.begin(), stands_for.end(), 0);
  std::vector<bool> computed(graph.values.size(), false), is_output(graph.values.size(), false);
  for (const ValueId id : graph.outputs) {
    is_output[static_cast<std::size_t>(id)] = true;
  }
  std::vector<std::pair<ValueId, ValueId>> renamed;  // a value, and the output that it becomes
  std::size_t changes = 0;
  std::vector<bool> gone(graph.nodes.size(), false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (ValueId& id : node.inputs) {
      id = id == kNoValue ? id : stands_for[static_cast<std::size_t>(id)];
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) {
        computed[static_cast<std::size_t>(id)] = true;
      }
    }
    if (!hands_on(graph, node)) {
      continue;
    }
    const ValueId from = node.inputs[0], to = node.outputs[0];
    if (is_output[static_cast<std::size_t>(to)]) {
      if (!computed[static_cast<std::size_t>(from)] || is_output[static_cast<std::size_t>(from)] ||
          graph.is_constant(from)) {
        continue;
      }
      renamed.emplace_back(from, to);
      is_output[static_cast<std::size_t>(from)] = true;
    } else {
      stands_for[static_cast<std::size_t>(to)] = from;
    }
    gone[i] = true;
    ++changes;
  }
  std::size_t i = 0;
  std::erase_if(graph.nodes, [&](const Node&) { return gone[i++]; });
  std::vector<ValueId> final_id(graph.values.size());
  std::iota(final_id.begin(), final_id.end(), 0);
  for (const auto& [from, to] : renamed) {
    final_id[static_cast<std::size_t>(from)] = to;
  }
  for (Node& node : graph.nodes) {
    for (auto* ids : {&node.inputs, &node.outputs}) {
      for (ValueId& id : *ids) {
        id = id == kNoValue ? id : final_id[static_cast<std::size_t>(id)];
      }
    }
  }
  return changes;
}

// What a node does after the one before it has done its part, as one node of the same operator; nothing if they do not
// join. The one before stays, if others use it.
std::optional<Node> joined(const Graph& graph, const Node& first, const Node& second) {
  Node made = second;
  made.inputs[0] = first.inputs[0];
  if (second.op == "Transpose") {
    const Ints before = first.get_ints("perm"), after = second.get_ints("perm");
    if (before.empty() || before.size() != after.size()) {
      return std::nullopt;
    }
    Ints perm;
    for (const std::int64_t axis : after) {
      perm.push_back(before[static_cast<std::size_t>(axis)]);
    }
    made.set("perm", std::move(perm));
    return made;
  }
  if (second.op == "Cast") {
    const DType from = graph.value(first.inputs[0]).type.dtype, middle = graph.value(second.inputs[0]).type.dtype;
    return is_widening(from, middle) ? std::optional(made) : std::nullopt;
  }
  // A zero copies a dimension of the input, which would then be another one.
  const auto shape = constant_ints(graph, second, 1);
  const bool copies =
      second.get_int("allowzero", 0) == 0 && (!shape || std::count(shape->begin(), shape->end(), 0) > 0);
  return copies ? std::nullopt : std::optional(made);
}

Result<std::size_t> join(Graph& graph) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    const Node& node = rewriter.node(i);
    if (node.inputs.empty() || !(is_op(node, "Transpose") || is_op(node, "Cast") || is_op(node, "Reshape"))) {
      continue;
    }
    const int before = rewriter.producer(node.inputs[0], node.op);
    if (before == Rewriter::kNone) {
      continue;
    }
    if (auto made = joined(graph, rewriter.node(before), node)) {
      if (Status status = rewriter.change(i, std::move(*made)); !status.ok()) {
        return status;
      }
    }
  }
  return rewriter.finish();
}

Result<std::size_t> run(Graph& graph, const PassContext&) {
  auto joins = join(graph);
  if (!joins.ok()) {
    return joins;
  }
  const std::size_t changes = *joins + bypass(graph);
  graph.remove_dead();
  return changes;
}

}  // namespace

Pass make_no_ops() {
  return {"no_ops", "removes nodes that change nothing, and joins chains of transposes, reshapes and casts",
          Pass::Stage::kBoth, run};
}

}  // namespace sluice::engine
