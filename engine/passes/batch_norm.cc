// Folds BatchNormalization into the weights of the Conv, ConvTranspose or Gemm before it.
#include <cmath>

#include "passes/fold_affine.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

// Inference with constant statistics; `spatial` 0, an opset 7 form with statistics for each element, is another thing.
bool is_affine(const Graph& graph, const Node& node) {
  if (!is_op(node, "BatchNormalization") || node.get_int("training_mode", 0) != 0 || node.get_int("spatial", 1) != 1) {
    return false;
  }
  for (std::size_t i = 1; i < 5; ++i) {
    if (!node.has_input(i) || !graph.is_constant(node.inputs[i])) {
      return false;
    }
  }
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) {
      return false;
    }
  }
  return true;
}

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    if (rewriter.node(i).inputs.empty() || !is_affine(graph, rewriter.node(i))) {
      continue;
    }
    const Node& node = rewriter.node(i);
    const ValueId from = node.inputs[0];
    const int before = rewriter.producer(from);
    if (before == Rewriter::kNone || rewriter.sole_user(from) != i) {
      continue;
    }
    const std::int64_t channels = foldable_channels(rewriter, before);
    std::vector<double> scale, shift;
    bool fits = channels > 0;
    for (std::size_t input = 1; input < 5 && fits; ++input) {
      fits = graph.value(node.inputs[input]).type.dims == Dims{channels};
    }
    if (!fits) {
      continue;
    }
    const auto parameter = [&](std::size_t input, std::int64_t c) {
      return graph.value(node.inputs[input]).constant->as_double(c);
    };
    for (std::int64_t c = 0; c < channels; ++c) {
      scale.push_back(parameter(1, c) / std::sqrt(parameter(4, c) + node.get_float("epsilon", 1e-5f)));
      shift.push_back(parameter(2, c) - parameter(3, c) * scale.back());
    }
    if (Status status = fold_affine(rewriter, before, i, scale, shift); !status.ok()) {
      return status;
    }
  }
  const std::size_t changes = rewriter.finish();
  graph.remove_dead();
  return changes;
}

}  // namespace

Pass make_batch_norm() {
  return {"batch_norm", "folds BatchNormalization into the weights before it", Pass::Stage::kModel, run};
}

}  // namespace sluice::engine
