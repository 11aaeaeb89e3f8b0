// The functions that fused nodes apply to their result, and how their attributes name them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/graph.h"

namespace sluice::engine {

enum class ActivationKind : std::uint8_t {
  kNone,
  kRelu,
  kLeakyRelu,  // alpha: slope below 0
  kClip,       // alpha: least, beta: most
  kElu,        // alpha
  kSigmoid,
  kHardSigmoid,  // max(0, min(1, alpha x + beta))
  kHardSwish,    // x hard_sigmoid(x)
  kSilu,         // x sigmoid(x)
  kGelu,         // x (1 + erf(x / sqrt(2))) / 2
  kGeluTanh,     // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  kTanh,
};

struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  float beta = 0;
};

// "relu", "leaky_relu", "clip", "elu", "sigmoid", "hard_sigmoid", "hard_swish", "silu", "gelu", "gelu_tanh", "tanh",
// "none"; nothing for any other name.
std::optional<ActivationKind> activation_named(std::string_view name);
const char* activation_name(ActivationKind kind);

// The attributes "activation" (default "none"), "activation_alpha", "activation_beta" (defaults: ONNX's, of the
// operator that the function is; 1/6 and 1/2 of hard_swish). REQUIRES: a name that check_activation accepted.
Activation activation_of(const Node& node);
// For schemas. Errors: kUnimplemented.
Status check_activation(const Node& node);

float activate(const Activation& activation, float x);

}  // namespace sluice::engine
