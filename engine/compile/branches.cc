#include "compile/branches.h"

#include <iterator>

#include "operators/registry.h"

namespace sluice::engine {

bool has_branches(const Node& node) { return node.get_graph(kBranches[0]) != nullptr; }

Status take_branch(Graph& graph, std::size_t at) {
  const Node node = std::move(graph.nodes[at]);
  if (!graph.is_constant(node.inputs[0])) {
    return refuse(node, "its condition depends on the data", "export the model with one of the branches only");
  }
  const Tensor& condition = *graph.value(node.inputs[0]).constant;
  if (condition.elements() != 1) {
    return Status::error(Code::kInvalidArgument, "%s: its condition is not one value", describe(node).c_str());
  }
  const bool taken = condition.as_int(0) != 0;
  const Graph& branch = *node.get_graph(kBranches[taken ? 0 : 1]);
  const std::size_t first_input = taken ? 1 : 1 + node.get_graph(kBranches[0])->inputs.size();

  std::vector<ValueId> here(branch.values.size(), kNoValue);  // by the branch's value
  for (std::size_t i = 0; i < branch.inputs.size(); ++i) {
    here[static_cast<std::size_t>(branch.inputs[i])] = node.inputs[first_input + i];
  }
  for (std::size_t i = 0; i < branch.values.size(); ++i) {
    if (here[i] == kNoValue) {
      here[i] = static_cast<ValueId>(graph.values.size());
      graph.values.push_back(branch.values[i]);
    }
  }
  std::vector<Node> nodes = branch.nodes;
  for (Node& inner : nodes) {
    for (auto* ids : {&inner.inputs, &inner.outputs}) {
      for (ValueId& id : *ids) {
        id = id == kNoValue ? kNoValue : here[static_cast<std::size_t>(id)];
      }
    }
  }
  // The node's own results keep their names and places: one may be the graph's output, or a value of the graph around.
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) {
      Node& copy = nodes.emplace_back();
      copy.op = "Identity";
      copy.opset = node.opset;
      copy.inputs = {here[static_cast<std::size_t>(branch.outputs[i])]};
      copy.outputs = {node.outputs[i]};
      if (Status status = bind_schema(graph, copy); !status.ok()) {
        return status;
      }
    }
  }
  const auto place = graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  graph.nodes.insert(place, std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
  return {};
}

}  // namespace sluice::engine
