// Elementwise steps on a run of floats.
#pragma once

#include <cstdint>

#include "operators/elementwise_steps.h"

namespace sluice::engine::cpu {

// Where a step's operand comes from, along a run: a float for each result, or the same one or the same eight again and
// again.
struct RunOperand {
  enum class Kind : std::uint8_t { kDense, kSame, kSameEight };
  Kind kind = Kind::kDense;
  const float* data = nullptr;
};

// y[i] = step(a[i], b[i]) for 0 <= i < count; y may be a or b. REQUIRES: has_avx2(); y + i % 8 == 0 at kSameEight's
// start.
void run_step(const Step& step, RunOperand a, RunOperand b, float* y, std::int64_t count);

// In place. REQUIRES: has_avx2().
void activate_run(const Activation& with, float* y, std::int64_t count);
void add_run(const float* x, float* y, std::int64_t count);

}  // namespace sluice::engine::cpu
