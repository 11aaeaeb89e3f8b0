#include <algorithm>
#include <cmath>
#include <iterator>

#include "operators/recurrent.h"

namespace sluice::engine {
namespace {

using Kind = RecurrentActivation::Kind;

// Parameters default as those of the ONNX operator of that name do, where there is one.
struct Row {
  const char* name;
  Kind kind;
  bool has_alpha, has_beta, has_defaults;
  float alpha, beta;
};
constexpr Row kRows[] = {
    {"Affine", Kind::kAffine, true, true, false, 0, 0},
    {"Elu", Kind::kElu, true, false, true, 1, 0},
    {"HardSigmoid", Kind::kHardSigmoid, true, true, true, 0.2f, 0.5f},
    {"LeakyRelu", Kind::kLeakyRelu, true, false, true, 0.01f, 0},
    {"Relu", Kind::kRelu, false, false, true, 0, 0},
    {"ScaledTanh", Kind::kScaledTanh, true, true, false, 0, 0},
    {"Sigmoid", Kind::kSigmoid, false, false, true, 0, 0},
    {"Softplus", Kind::kSoftplus, false, false, true, 0, 0},
    {"Softsign", Kind::kSoftsign, false, false, true, 0, 0},
    {"Tanh", Kind::kTanh, false, false, true, 0, 0},
    {"ThresholdedRelu", Kind::kThresholdedRelu, true, false, true, 1, 0},
};

const Row* find(const std::string& name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return name == r.name; });
  return row == std::end(kRows) ? nullptr : row;
}

std::vector<std::string> names_of(const Node& node) {
  const Attribute* attribute = node.find("activations");
  return attribute == nullptr ? std::vector<std::string>() : std::get<std::vector<std::string>>(attribute->value);
}

}  // namespace

float RecurrentActivation::operator()(float x) const {
  switch (kind) {
    case Kind::kAffine:
      return alpha * x + beta;
    case Kind::kElu:
      return x >= 0 ? x : alpha * (std::exp(x) - 1);
    case Kind::kHardSigmoid:
      return std::clamp(alpha * x + beta, 0.0f, 1.0f);
    case Kind::kLeakyRelu:
      return x >= 0 ? x : alpha * x;
    case Kind::kRelu:
      return std::max(x, 0.0f);
    case Kind::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case Kind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Kind::kSoftplus:
      return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
    case Kind::kSoftsign:
      return x / (1 + std::fabs(x));
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kThresholdedRelu:
      return x >= alpha ? x : 0;
  }
  return x;
}

Result<std::vector<RecurrentActivation>> recurrent_activations(const Node& node,
                                                               const std::vector<std::string>& defaults) {
  const std::size_t directions = node.get_string("direction", "forward") == "bidirectional" ? 2 : 1;
  std::vector<std::string> names = names_of(node);
  if (names.empty()) {
    for (std::size_t d = 0; d < directions; ++d) {
      names.insert(names.end(), defaults.begin(), defaults.end());
    }
  }
  if (names.size() != directions * defaults.size()) {
    return refuse(node, "so many activations", "give one for each function of each direction");
  }
  const std::vector<float> alphas = node.get_floats("activation_alpha"), betas = node.get_floats("activation_beta");
  std::size_t next_alpha = 0, next_beta = 0;
  std::vector<RecurrentActivation> result;
  for (const std::string& name : names) {
    const Row* row = find(name);
    if (row == nullptr) {
      return refuse(node, "activation '" + name.substr(0, 40) + "'", "export the model with another one");
    }
    RecurrentActivation activation{row->kind, row->alpha, row->beta};
    const bool lacks = (row->has_alpha && next_alpha >= alphas.size()) || (row->has_beta && next_beta >= betas.size());
    if (lacks && (!row->has_defaults || !alphas.empty() || !betas.empty())) {
      return refuse(node, "too few values in activation_alpha or activation_beta",
                    "give one for each activation that has such a parameter");
    }
    if (!lacks && row->has_alpha) {
      activation.alpha = alphas[next_alpha++];
    }
    if (!lacks && row->has_beta) {
      activation.beta = betas[next_beta++];
    }
    result.push_back(activation);
  }
  if (next_alpha != alphas.size() || next_beta != betas.size()) {
    return refuse(node, "more values in activation_alpha or activation_beta than its activations have",
                  "give one for each activation that has such a parameter");
  }
  return result;
}

}  // namespace sluice::engine
