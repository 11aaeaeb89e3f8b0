// x * Sigmoid(x), which exporters write for SiLU (Swish), becomes one node.
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    const Node& product = rewriter.node(i);
    if (!is_op(product, "Mul")) {
      continue;
    }
    for (const std::size_t side : {0u, 1u}) {
      const int sigmoid = rewriter.hidden_producer(product.inputs[side], "Sigmoid");
      if (sigmoid == Rewriter::kNone || rewriter.node(sigmoid).inputs[0] != product.inputs[1 - side]) {
        continue;
      }
      Node made = own_node("FusedActivation", product.opset, {product.inputs[1 - side]}, product.outputs[0]);
      made.set("activation", std::string("silu"));
      if (Status status = rewriter.fuse({sigmoid, i}, std::move(made)); !status.ok()) {
        return status;
      }
      break;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_silu() { return {"silu", "x * Sigmoid(x) as one node", Pass::Stage::kProgram, run}; }

}  // namespace sluice::engine
