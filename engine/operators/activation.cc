#include "operators/activation.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "operators/schema.h"

namespace sluice::engine {
namespace {

struct Known {
  ActivationKind kind;
  const char* name;
  float alpha, beta;  // where the node has none
};
constexpr Known kKnown[] = {
    {ActivationKind::kNone, "none", 0, 0},
    {ActivationKind::kRelu, "relu", 0, 0},
    {ActivationKind::kLeakyRelu, "leaky_relu", 0.01f, 0},
    {ActivationKind::kClip, "clip", std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()},
    {ActivationKind::kElu, "elu", 1, 0},
    {ActivationKind::kSigmoid, "sigmoid", 0, 0},
    {ActivationKind::kHardSigmoid, "hard_sigmoid", 0.2f, 0.5f},
    {ActivationKind::kHardSwish, "hard_swish", 1.0f / 6, 0.5f},
    {ActivationKind::kSilu, "silu", 0, 0},
    {ActivationKind::kGelu, "gelu", 0, 0},
    {ActivationKind::kGeluTanh, "gelu_tanh", 0, 0},
    {ActivationKind::kTanh, "tanh", 0, 0},
};

float sigmoid(float x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
float hard_sigmoid(float x, float alpha, float beta) { return std::fmax(0.0f, std::fmin(1.0f, alpha * x + beta)); }

}  // namespace

std::optional<ActivationKind> activation_named(std::string_view name) {
  for (const Known& known : kKnown) {
    if (known.name == name) {
      return known.kind;
    }
  }
  return std::nullopt;
}

const char* activation_name(ActivationKind kind) { return kKnown[static_cast<std::size_t>(kind)].name; }

Activation activation_of(const Node& node) {
  const auto kind = activation_named(node.get_string("activation", "none")).value_or(ActivationKind::kNone);
  const Known& known = kKnown[static_cast<std::size_t>(kind)];
  return {kind, node.get_float("activation_alpha", known.alpha), node.get_float("activation_beta", known.beta)};
}

Status check_activation(const Node& node) {
  const std::string name = node.get_string("activation", "none");
  if (!activation_named(name)) {
    return refuse(node, "there is no activation '" + name.substr(0, 40) + "'", "switch off the pass that made it");
  }
  return {};
}

float activate(const Activation& activation, float x) {
  const float alpha = activation.alpha, beta = activation.beta;
  switch (activation.kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return x > 0 || x != x ? x : 0;
    case ActivationKind::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case ActivationKind::kClip:
      return x < alpha ? alpha : x > beta ? beta : x;
    case ActivationKind::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case ActivationKind::kSigmoid:
      return sigmoid(x);
    case ActivationKind::kHardSigmoid:
      return hard_sigmoid(x, alpha, beta);
    case ActivationKind::kHardSwish:
      return x * hard_sigmoid(x, alpha, beta);
    case ActivationKind::kSilu:
      return x * sigmoid(x);
    case ActivationKind::kGelu:
      return 0.5f * x * (1 + std::erf(x * (std::numbers::sqrt2_v<float> / 2)));
    case ActivationKind::kGeluTanh: {
      const float root = std::sqrt(2 / std::numbers::pi_v<float>);
      return 0.5f * x * (1 + std::tanh(root * (x + 0.044715f * x * x * x)));
    }
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  return x;
}

}  // namespace sluice::engine
