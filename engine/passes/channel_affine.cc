// Folds products and sums with a constant a channel into the weights and the bias of the Conv or ConvTranspose before.
#include "passes/fold_affine.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

// A value a channel from a constant that broadcasts along axis 1 of a tensor of `rank` dimensions, and along no other;
// empty if it does not.
std::vector<double> by_channel(const Graph& graph, ValueId id, std::size_t rank, std::int64_t channels) {
  if (!graph.is_constant(id)) {
    return {};
  }
  const Tensor& tensor = *graph.value(id).constant;
  const Dims& dims = tensor.dims();
  if (dims.size() > rank) {
    return {};
  }
  const std::int64_t elements = tensor.elements();
  const bool one = elements == 1;
  const bool each = elements == channels && dims.size() + 1 >= rank && dims[dims.size() + 1 - rank] == channels;
  if (!one && !each) {
    return {};
  }
  std::vector<double> values;
  for (std::int64_t c = 0; c < channels; ++c) {
    values.push_back(tensor.as_double(one ? 0 : c));
  }
  return values;
}

// Which of Mul, Div, Add, Sub it is, as a scale and a shift of its left or only variable input.
bool as_affine(const Node& node, bool constant_left, std::vector<double>& scale, std::vector<double>& shift) {
  const std::vector<double> values = std::move(scale);
  scale.assign(values.size(), 1);
  shift.assign(values.size(), 0);
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (is_op(node, "Mul")) {
      scale[c] = values[c];
    } else if (is_op(node, "Div") && !constant_left && values[c] != 0) {
      scale[c] = 1 / values[c];
    } else if (is_op(node, "Add")) {
      shift[c] = values[c];
    } else if (is_op(node, "Sub")) {
      scale[c] = constant_left ? -1 : 1;
      shift[c] = constant_left ? values[c] : -values[c];
    } else {
      return false;
    }
  }
  return true;
}

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    const Node& node = rewriter.node(i);
    if (node.inputs.size() != 2 || !node.domain.empty() || node.inputs[0] == kNoValue || node.inputs[1] == kNoValue) {
      continue;
    }
    const bool constant_left = graph.is_constant(node.inputs[0]);
    const ValueId from = node.inputs[constant_left ? 1 : 0];
    const int before = rewriter.producer(from);
    if (before == Rewriter::kNone || rewriter.sole_user(from) != i || is_op(rewriter.node(before), "Gemm")) {
      continue;
    }
    const std::int64_t channels = foldable_channels(rewriter, before);
    if (channels == 0) {
      continue;
    }
    const std::size_t rank = graph.value(rewriter.node(before).inputs[1]).type.dims.size();
    std::vector<double> scale = by_channel(graph, node.inputs[constant_left ? 0 : 1], rank, channels), shift;
    if (scale.empty() || !as_affine(node, constant_left, scale, shift)) {
      continue;
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

Pass make_channel_affine() {
  return {"channel_affine", "folds products and sums with a constant a channel into the convolution before",
          Pass::Stage::kModel, run};
}

}  // namespace sluice::engine
