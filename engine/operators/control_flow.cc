// If. Its branches are graphs of their own until a program is compiled; the one that is taken then replaces the node
// (compile/branches.h).
#include <memory>

#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status bind_if(Graph& graph, Node& node) {
  if (!node.has_input(0) || graph.value(node.inputs[0]).type.dtype != DType::kBool) {
    return Status::error(Code::kInvalidArgument, "%s needs a condition of bool; the model is damaged",
                         describe(node).c_str());
  }
  std::size_t input = 1;
  for (const char* name : {"then_branch", "else_branch"}) {
    auto branch = std::make_shared<Graph>(*node.get_graph(name));
    for (const ValueId id : branch->inputs) {
      branch->value(id).type.dtype = graph.value(node.inputs[input++]).type.dtype;
    }
    if (Status status = bind_schemas(*branch); !status.ok()) {
      return status;
    }
    if (branch->outputs.size() != node.outputs.size()) {
      return Status::error(Code::kInvalidArgument, "%s: %s has %zu outputs instead of %zu; the model is damaged",
                           describe(node).c_str(), name, branch->outputs.size(), node.outputs.size());
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const DType dtype = branch->value(branch->outputs[i]).type.dtype;
      if (node.outputs[i] == kNoValue) {
        continue;
      }
      DType& known = graph.value(node.outputs[i]).type.dtype;
      if (known != DType::kUndefined && known != dtype) {
        return refuse(node, "its branches yield different types", "export the model with one of the branches only");
      }
      known = dtype;
    }
    node.set(name, std::shared_ptr<const Graph>(std::move(branch)));
  }
  return {};
}

Status infer_if(ShapeContext& context) {
  return refuse(context.node(), "its condition depends on the data", "export the model with one of the branches only");
}

}  // namespace

void register_control_flow(Registry& registry) {
  registry.add({.op = "If",
                .inputs = "cond:B",
                .outputs = "outputs:V*",
                .attributes = "then_branch:graph!, else_branch:graph!",
                .types = {{"B", kBools}, {"V", kAllTypes}},
                .shape_inputs = {0},
                .infer = infer_if,
                .bind = bind_if});
}

}  // namespace sluice::engine
