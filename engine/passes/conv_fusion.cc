// Conv with the residual that is added to it and the activation that follows, as one node.
#include "passes/node_activation.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    if (!is_op(rewriter.node(i), "Conv")) {
      continue;
    }
    const Node& conv = rewriter.node(i);
    std::vector<int> nodes = {i};
    ValueId result = conv.outputs[0], residual = kNoValue;
    if (const FollowingSum sum = following_sum(rewriter, result);
        sum.node != Rewriter::kNone && rewriter.dims(sum.other) == rewriter.dims(result)) {
      nodes.push_back(sum.node);
      residual = sum.other;
      result = rewriter.node(sum.node).outputs[0];
    }
    const FollowingActivation following = following_activation(rewriter, result);
    if (following.node != Rewriter::kNone) {
      nodes.push_back(following.node);
      result = rewriter.node(following.node).outputs[0];
    }
    if (nodes.size() == 1) {
      continue;
    }
    Node made = own_node("FusedConv", conv.opset, conv.inputs, result);
    made.attributes = conv.attributes;
    if (residual != kNoValue) {
      made.inputs.resize(4, kNoValue);
      made.inputs[3] = residual;
    }
    if (following.node != Rewriter::kNone) {
      set_activation(made, following.activation);
    }
    if (Status status = rewriter.fuse(std::move(nodes), std::move(made)); !status.ok()) {
      return status;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_conv_fusion() {
  return {"conv_fusion", "Conv with a residual and an activation as one node", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
