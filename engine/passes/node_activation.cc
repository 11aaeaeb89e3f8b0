#include "passes/node_activation.h"

#include <limits>

namespace sluice::engine {
namespace {

std::optional<float> bound(const Graph& graph, const Node& node, std::size_t input, const char* attribute,
                           float fallback) {
  if (node.opset < 11) {
    return node.get_float(attribute, fallback);
  }
  if (!node.has_input(input)) {
    return fallback;
  }
  const auto value = scalar_of(graph, node.inputs[input]);
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

std::optional<Activation> clip(const Graph& graph, const Node& node) {
  const auto low = bound(graph, node, 1, "min", std::numeric_limits<float>::lowest());
  const auto high = bound(graph, node, 2, "max", std::numeric_limits<float>::max());
  return low && high ? std::optional(Activation{ActivationKind::kClip, *low, *high}) : std::nullopt;
}

}  // namespace

std::optional<Activation> node_activation(const Graph& graph, const Node& node) {
  if (node.domain == kOwnDomain && node.op == "FusedActivation") {
    return activation_of(node);
  }
  if (!node.domain.empty() || node.inputs.empty() || node.inputs[0] == kNoValue) {
    return std::nullopt;
  }
  const DType dtype = graph.value(node.inputs[0]).type.dtype;
  if (dtype != DType::kFloat && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    return std::nullopt;
  }
  if (node.op == "Relu") {
    return Activation{ActivationKind::kRelu, 0, 0};
  }
  if (node.op == "Sigmoid") {
    return Activation{ActivationKind::kSigmoid, 0, 0};
  }
  if (node.op == "Tanh") {
    return Activation{ActivationKind::kTanh, 0, 0};
  }
  if (node.op == "LeakyRelu") {
    return Activation{ActivationKind::kLeakyRelu, node.get_float("alpha", 0.01f), 0};
  }
  if (node.op == "Elu") {
    return Activation{ActivationKind::kElu, node.get_float("alpha", 1), 0};
  }
  if (node.op == "HardSigmoid") {
    return Activation{ActivationKind::kHardSigmoid, node.get_float("alpha", 0.2f), node.get_float("beta", 0.5f)};
  }
  if (node.op == "Clip") {
    return clip(graph, node);
  }
  return std::nullopt;
}

void set_activation(Node& node, const Activation& activation) {
  node.set("activation", std::string(activation_name(activation.kind)));
  node.set("activation_alpha", activation.alpha);
  node.set("activation_beta", activation.beta);
}

FollowingActivation following_activation(const Rewriter& rewriter, ValueId id) {
  const int user = rewriter.sole_user(id);
  if (user != Rewriter::kNone && rewriter.node(user).inputs[0] == id) {
    if (const auto activation = node_activation(rewriter.graph(), rewriter.node(user))) {
      return {user, *activation};
    }
  }
  return {};
}

FollowingSum following_sum(const Rewriter& rewriter, ValueId id) {
  int user = rewriter.sole_user(id, "Add");
  user = user == Rewriter::kNone ? rewriter.sole_user(id, "Sum") : user;
  if (user == Rewriter::kNone || rewriter.node(user).inputs.size() != 2) {
    return {};
  }
  const auto& inputs = rewriter.node(user).inputs;
  return {user, inputs[inputs[0] == id ? 1 : 0]};
}

}  // namespace sluice::engine
