// Folds "times scale plus shift, a pair a channel" into the weights and the bias of the node that computes the
// channels.
#pragma once

#include <vector>

#include "passes/rewriter.h"

namespace sluice::engine {

// The number of channels that a Conv, ConvTranspose or Gemm computes, if its weights and bias are constants that can be
// scaled; 0 otherwise.
std::int64_t foldable_channels(const Rewriter& rewriter, int index);

// Makes node `index` compute what node `last`, its only user, computes from it: result * scale + shift. REQUIRES: as
// many scales and shifts as foldable_channels() says, which is not 0.
Status fold_affine(Rewriter& rewriter, int index, int last, const std::vector<double>& scale,
                   const std::vector<double>& shift);

}  // namespace sluice::engine
