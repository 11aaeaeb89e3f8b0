// Activations as passes find them in graphs.
#pragma once

#include "operators/activation.h"
#include "passes/rewriter.h"

namespace sluice::engine {

// The function that a node applies to each element of its first input, standard or fused already; nothing if it does
// anything else, or if its parameters are no constants.
std::optional<Activation> node_activation(const Graph& graph, const Node& node);

// Writes "activation" and its parameters.
void set_activation(Node& node, const Activation& activation);

// The activation that the only user of a value applies to it, and that node; kNone if there is none.
struct FollowingActivation {
  int node = Rewriter::kNone;
  Activation activation;
};
FollowingActivation following_activation(const Rewriter& rewriter, ValueId id);

// The other input of an Add that is the only user of `id`; kNoValue, and no node, if there is none.
struct FollowingSum {
  int node = Rewriter::kNone;
  ValueId other = kNoValue;
};
FollowingSum following_sum(const Rewriter& rewriter, ValueId id);

}  // namespace sluice::engine
