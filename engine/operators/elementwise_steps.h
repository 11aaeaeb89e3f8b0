// The little language in which an Elementwise node says what it computes: a step a string, "mul i0 s2".
//
// A step is an operation and its operands: "i<n>" the n-th input, "s<n>" the result of an earlier step, or a number
// ("0.5", "1e-5", "-inf"). The last step is the result. Operations: add, sub, mul, div, max, min, pow of two operands;
// abs, ceil, erf, exp, floor, log, neg, reciprocal, round, sqrt and, of activation.h, relu, sigmoid, silu, gelu,
// gelu_tanh, tanh of one; leaky_relu, elu of an operand and a number, clip, hard_sigmoid, hard_swish of an operand and
// two numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operators/activation.h"
#include "sluice/base/status.h"

namespace sluice::engine {

enum class StepOp : std::uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,
  kPow,
  kAbs,
  kCeil,
  kErf,
  kExp,
  kFloor,
  kLog,
  kNeg,
  kReciprocal,
  kRound,
  kSqrt,
  kActivation,
};

struct StepOperand {
  enum class Kind : std::uint8_t { kInput, kStep, kNumber };
  Kind kind = Kind::kNumber;
  std::size_t index = 0;  // of kInput, kStep
  float number = 0;       // of kNumber
};

struct Step {
  StepOp op = StepOp::kAdd;
  Activation activation;  // of kActivation
  StepOperand a, b;       // b: of operations of two operands
  bool binary() const { return op <= StepOp::kPow; }
};

inline constexpr std::size_t kMostSteps = 64;

// Errors: kInvalidArgument, naming the step.
Result<std::vector<Step>> parse_steps(const std::vector<std::string>& texts, std::size_t inputs);

// One step on one element.
float compute_step(const Step& step, float a, float b);

}  // namespace sluice::engine
