#include "cpu/vector_steps.h"

#include "cpu/simd.h"

SLUICE_AVX2_BEGIN
namespace sluice::engine::cpu {
namespace {

template <class F, bool kDenseA, bool kDenseB>
void loop(F f, Vec fixed_a, Vec fixed_b, const float* a, const float* b, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(y + i, f(kDenseA ? load(a + i) : fixed_a, kDenseB ? load(b + i) : fixed_b));
  }
  if (const std::int64_t left = count - i; left > 0) {
    store_some(y + i, f(kDenseA ? load_some(a + i, left) : fixed_a, kDenseB ? load_some(b + i, left) : fixed_b), left);
  }
}

[[gnu::always_inline]] inline Vec fixed(const RunOperand& operand) {
  return operand.kind == RunOperand::Kind::kSame        ? vec(*operand.data)
         : operand.kind == RunOperand::Kind::kSameEight ? load(operand.data)
                                                        : _mm256_setzero_ps();
}

template <class F>
void unary(F f, const RunOperand& a, float* y, std::int64_t count) {
  const auto call = [f](Vec x, Vec) __attribute__((always_inline)) { return f(x); };  // captures: no pointer
  if (a.kind == RunOperand::Kind::kDense) {
    loop<decltype(call), true, false>(call, fixed(a), fixed(a), a.data, nullptr, y, count);
  } else {
    loop<decltype(call), false, false>(call, fixed(a), fixed(a), nullptr, nullptr, y, count);
  }
}

template <class F>
void binary(F f, const RunOperand& a, const RunOperand& b, float* y, std::int64_t count) {
  const bool dense_a = a.kind == RunOperand::Kind::kDense, dense_b = b.kind == RunOperand::Kind::kDense;
  if (dense_a && dense_b) {
    loop<F, true, true>(f, fixed(a), fixed(b), a.data, b.data, y, count);
  } else if (dense_a) {
    loop<F, true, false>(f, fixed(a), fixed(b), a.data, nullptr, y, count);
  } else if (dense_b) {
    loop<F, false, true>(f, fixed(a), fixed(b), nullptr, b.data, y, count);
  } else {
    loop<F, false, false>(f, fixed(a), fixed(b), nullptr, nullptr, y, count);
  }
}

float at(const RunOperand& operand, std::int64_t i) {
  return operand.kind == RunOperand::Kind::kDense  ? operand.data[i]
         : operand.kind == RunOperand::Kind::kSame ? *operand.data
                                                   : operand.data[i % kLanes];
}

template <ActivationKind kKind>
void activation(const Activation& with, const RunOperand& a, float* y, std::int64_t count) {
  const Vec alpha = vec(with.alpha), beta = vec(with.beta);
  unary(
      [=](Vec x) __attribute__((always_inline)) { return activate(kKind, alpha, beta, x); }, a, y, count);
}

void run_activation(const Activation& with, const RunOperand& a, float* y, std::int64_t count) {
  switch (with.kind) {
    case ActivationKind::kNone:
      return activation<ActivationKind::kNone>(with, a, y, count);
    case ActivationKind::kRelu:
      return activation<ActivationKind::kRelu>(with, a, y, count);
    case ActivationKind::kLeakyRelu:
      return activation<ActivationKind::kLeakyRelu>(with, a, y, count);
    case ActivationKind::kClip:
      return activation<ActivationKind::kClip>(with, a, y, count);
    case ActivationKind::kElu:
      return activation<ActivationKind::kElu>(with, a, y, count);
    case ActivationKind::kSigmoid:
      return activation<ActivationKind::kSigmoid>(with, a, y, count);
    case ActivationKind::kHardSigmoid:
      return activation<ActivationKind::kHardSigmoid>(with, a, y, count);
    case ActivationKind::kHardSwish:
      return activation<ActivationKind::kHardSwish>(with, a, y, count);
    case ActivationKind::kSilu:
      return activation<ActivationKind::kSilu>(with, a, y, count);
    case ActivationKind::kGelu:
      return activation<ActivationKind::kGelu>(with, a, y, count);
    case ActivationKind::kGeluTanh:
      return activation<ActivationKind::kGeluTanh>(with, a, y, count);
    case ActivationKind::kTanh:
      return activation<ActivationKind::kTanh>(with, a, y, count);
  }
}

// What the instructions do with a NaN on the left is not what operators do.
[[gnu::always_inline]] inline Vec keep_nan(Vec a, Vec result) {
  return _mm256_blendv_ps(result, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

// Functions, not lambdas: those convert to pointers to functions, whose signature needs AVX everywhere.
#define SLUICE_BINARY(name, expression)                                              \
  struct name {                                                                      \
    [[gnu::always_inline]] Vec operator()(Vec p, Vec q) const { return expression; } \
  };
#define SLUICE_UNARY(name, expression)                                        \
  struct name {                                                               \
    [[gnu::always_inline]] Vec operator()(Vec x) const { return expression; } \
  };
SLUICE_BINARY(Add, _mm256_add_ps(p, q))
SLUICE_BINARY(Sub, _mm256_sub_ps(p, q))
SLUICE_BINARY(Mul, _mm256_mul_ps(p, q))
SLUICE_BINARY(Div, _mm256_div_ps(p, q))
SLUICE_BINARY(Max, keep_nan(p, _mm256_max_ps(p, q)))
SLUICE_BINARY(Min, keep_nan(p, _mm256_min_ps(p, q)))
SLUICE_UNARY(Abs, _mm256_andnot_ps(vec(-0.0f), x))
SLUICE_UNARY(Ceil, _mm256_ceil_ps(x))
SLUICE_UNARY(Erf, erf(x))
SLUICE_UNARY(Exp, exp(x))
SLUICE_UNARY(Floor, _mm256_floor_ps(x))
SLUICE_UNARY(Neg, _mm256_xor_ps(vec(-0.0f), x))
SLUICE_UNARY(Reciprocal, _mm256_div_ps(vec(1.0f), x))
SLUICE_UNARY(Round, _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
SLUICE_UNARY(Sqrt, _mm256_sqrt_ps(x))
#undef SLUICE_BINARY
#undef SLUICE_UNARY

}  // namespace

void activate_run(const Activation& with, float* y, std::int64_t count) {
  if (with.kind != ActivationKind::kNone) {
    run_activation(with, {RunOperand::Kind::kDense, y}, y, count);
  }
}

void add_run(const float* x, float* y, std::int64_t count) {
  binary(Add(), {RunOperand::Kind::kDense, x}, {RunOperand::Kind::kDense, y}, y, count);
}

void run_step(const Step& step, RunOperand a, RunOperand b, float* y, std::int64_t count) {
  switch (step.op) {
    case StepOp::kAdd:
      return binary(Add(), a, b, y, count);
    case StepOp::kSub:
      return binary(Sub(), a, b, y, count);
    case StepOp::kMul:
      return binary(Mul(), a, b, y, count);
    case StepOp::kDiv:
      return binary(Div(), a, b, y, count);
    case StepOp::kMax:
      return binary(Max(), a, b, y, count);
    case StepOp::kMin:
      return binary(Min(), a, b, y, count);
    case StepOp::kAbs:
      return unary(Abs(), a, y, count);
    case StepOp::kCeil:
      return unary(Ceil(), a, y, count);
    case StepOp::kErf:
      return unary(Erf(), a, y, count);
    case StepOp::kExp:
      return unary(Exp(), a, y, count);
    case StepOp::kFloor:
      return unary(Floor(), a, y, count);
    case StepOp::kNeg:
      return unary(Neg(), a, y, count);
    case StepOp::kReciprocal:
      return unary(Reciprocal(), a, y, count);
    case StepOp::kRound:
      return unary(Round(), a, y, count);
    case StepOp::kSqrt:
      return unary(Sqrt(), a, y, count);
    case StepOp::kActivation:
      return run_activation(step.activation, a, y, count);
    case StepOp::kPow:
    case StepOp::kLog:
      for (std::int64_t i = 0; i < count; ++i) {
        y[i] = compute_step(step, at(a, i), step.binary() ? at(b, i) : 0.0f);
      }
      return;
  }
}

}  // namespace sluice::engine::cpu
SLUICE_AVX2_END
