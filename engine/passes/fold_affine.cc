#include "passes/fold_affine.h"

#include <algorithm>

namespace sluice::engine {
namespace {

// Which channel an element of the weights belongs to: (offset / inner % channels), and for the groups of a
// ConvTranspose, whose weights are [in, out / group, ...], the group that the input channel lies in.
struct ChannelOf {
  std::int64_t inner = 1;
  std::int64_t channels = 1;        // along the weights' own axis of channels
  std::int64_t inputs_a_group = 1;  // of ConvTranspose
  bool grouped = false;
  std::int64_t operator()(std::int64_t offset) const {
    const std::int64_t own = offset / inner % channels;
    return grouped ? offset / (inner * channels) / inputs_a_group * channels + own : own;
  }
};

ChannelOf channel_of(const Node& node, const Dims& weights) {
  ChannelOf result;
  if (is_op(node, "Gemm")) {
    const bool transposed = node.get_int("transB", 0) != 0;
    result.channels = weights[transposed ? 0 : 1];
    result.inner = transposed ? weights[1] : 1;
    return result;
  }
  const bool transpose = is_op(node, "ConvTranspose");
  result.channels = weights[transpose ? 1 : 0];
  for (std::size_t d = transpose ? 2 : 1; d < weights.size(); ++d) {
    result.inner *= weights[d];
  }
  result.grouped = transpose;
  result.inputs_a_group = transpose ? weights[0] / node.get_int("group", 1) : 1;
  return result;
}

}  // namespace

std::int64_t foldable_channels(const Rewriter& rewriter, int index) {
  const Graph& graph = rewriter.graph();
  const Node& node = rewriter.node(index);
  const bool gemm = is_op(node, "Gemm"), transpose = is_op(node, "ConvTranspose");
  if ((!gemm && !transpose && !is_op(node, "Conv")) || !graph.is_constant(node.inputs[1])) {
    return 0;
  }
  const Tensor& weights = *graph.value(node.inputs[1]).constant;
  const std::size_t rank = weights.dims().size();
  const std::int64_t group = node.get_int("group", 1);
  if (gemm ? rank != 2 : (rank < 3 || group < 1 || weights.dims()[0] % group != 0 || weights.dims()[0] == 0)) {
    return 0;
  }
  std::int64_t channels = weights.dims()[gemm ? (node.get_int("transB", 0) != 0 ? 0u : 1u) : (transpose ? 1u : 0u)];
  channels *= transpose ? group : 1;
  if (node.has_input(2)) {
    if (!graph.is_constant(node.inputs[2])) {
      return 0;
    }
    // Gemm's addend may also be a whole matrix, or a column.
    const Dims& bias = graph.value(node.inputs[2]).type.dims;
    const std::int64_t elements = element_count(bias);
    if ((elements != channels && elements != 1) || (elements > 1 && bias.back() != channels)) {
      return 0;
    }
  }
  return channels;
}

Status fold_affine(Rewriter& rewriter, int index, int last, const std::vector<double>& scale,
                   const std::vector<double>& shift) {
  Graph& graph = rewriter.graph();
  Node made = rewriter.node(index);
  const Tensor weights = *graph.value(made.inputs[1]).constant;
  const std::string weights_name = graph.value(made.inputs[1]).name;
  std::vector<double> values;
  if (std::any_of(scale.begin(), scale.end(), [](double factor) { return factor != 1; })) {
    const ChannelOf channel = channel_of(made, weights.dims());
    values.resize(static_cast<std::size_t>(weights.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto offset = static_cast<std::int64_t>(i);
      values[i] = weights.as_double(offset) * scale[static_cast<std::size_t>(channel(offset))];
    }
    auto scaled = float_tensor(weights.dtype(), weights.dims(), values);
    if (!scaled.ok()) {
      return scaled.status();
    }
    made.inputs[1] = graph.add_constant(weights_name, std::move(*scaled));
    weights.drop_pages();  // in most models nobody reads them again; in others they come back
  }
  values.assign(scale.size(), 0.0);
  if (made.has_input(2)) {
    const Tensor& bias = *graph.value(made.inputs[2]).constant;
    const double beta = is_op(made, "Gemm") ? made.get_float("beta", 1) : 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = beta * bias.as_double(bias.elements() == 1 ? 0 : static_cast<std::int64_t>(i));
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = values[i] * scale[i] + shift[i];
  }
  auto bias = float_tensor(weights.dtype(), {static_cast<std::int64_t>(values.size())}, values);
  if (!bias.ok()) {
    return bias.status();
  }
  const std::string bias_name = made.has_input(2) ? graph.value(made.inputs[2]).name : weights_name + "_bias";
  if (is_op(made, "Gemm")) {
    made.set("beta", 1.0f);
  }
  made.inputs.resize(3, kNoValue);
  made.inputs[2] = graph.add_constant(bias_name, std::move(*bias));
  made.outputs = {rewriter.node(last).outputs[0]};
  return rewriter.fuse({index, last}, std::move(made));
}

}  // namespace sluice::engine
