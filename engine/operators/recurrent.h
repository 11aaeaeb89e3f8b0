// The functions that RNN, GRU and LSTM name in their attribute "activations".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operators/schema.h"

namespace sluice::engine {

struct RecurrentActivation {
  enum class Kind : std::uint8_t {
    kAffine,
    kElu,
    kHardSigmoid,
    kLeakyRelu,
    kRelu,
    kScaledTanh,
    kSigmoid,
    kSoftplus,
    kSoftsign,
    kTanh,
    kThresholdedRelu,
  };
  Kind kind = Kind::kTanh;
  float alpha = 0, beta = 0;

  float operator()(float x) const;
};

// One for each function of each direction. activation_alpha and activation_beta hold a value for each function that has
// such a parameter, in order. `defaults`: of one direction. Errors: kUnimplemented.
Result<std::vector<RecurrentActivation>> recurrent_activations(const Node& node,
                                                               const std::vector<std::string>& defaults);

}  // namespace sluice::engine
