// Elementwise operators and chains of them, on dense runs: a stretch at a time goes through all steps in the
// first-level cache.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "cpu/avx2.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/vector_steps.h"
#include "operators/broadcast.h"

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kStretch = 256;        // floats of an intermediate result
constexpr std::int64_t kSingle = 4096;        // of a chain of one step, which has none
constexpr std::int64_t kWorthThreads = 8192;  // results below which a second thread costs more than it brings
constexpr std::size_t kMostInputs = 8;

// The result as rows, and how each input lies along them.
struct Rows {
  std::int64_t length = 1;
  Dims outer;                                            // dimensions over rows
  std::array<Dims, kMostInputs> strides;                 // of each input along them
  std::array<RunOperand::Kind, kMostInputs> kinds = {};  // along a row
};

// Nothing, if an input lies in a way that no RunOperand describes.
std::optional<Rows> rows_of(const Dims& out, const std::vector<Dims>& inputs) {
  Dims dims;
  std::vector<Dims> strides(inputs.size());
  for (std::size_t d = 0; d < out.size(); ++d) {
    if (out[d] == 1) {
      continue;
    }
    Dims step(inputs.size());
    bool merges = !dims.empty();
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      const std::size_t lead = out.size() - inputs[n].size();
      step[n] = d < lead || inputs[n][d - lead] == 1 ? 0 : strides_of(inputs[n])[d - lead];
      merges = merges && strides[n].back() == step[n] * out[d];
    }
    if (merges) {
      dims.back() *= out[d];
    } else {
      dims.push_back(out[d]);
    }
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      if (merges) {
        strides[n].back() = step[n];
      } else {
        strides[n].push_back(step[n]);
      }
    }
  }
  Rows rows;
  const bool eight = dims.size() > 1 && dims.back() == 8;  // a row of blocks of channels
  const std::size_t inner = dims.empty() ? 0 : eight ? 2 : 1;
  for (std::size_t i = dims.size() - inner; i < dims.size(); ++i) {
    rows.length *= dims[i];
  }
  rows.outer.assign(dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(inner));
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    rows.strides[n].assign(strides[n].begin(), strides[n].end() - static_cast<std::ptrdiff_t>(inner));
    const std::int64_t last = dims.empty() ? 0 : strides[n].back();
    const std::int64_t before = eight ? strides[n][dims.size() - 2] : 8 * last;
    if (last == 1 && before == 8) {
      rows.kinds[n] = RunOperand::Kind::kDense;
    } else if (last == 1 && before == 0) {
      rows.kinds[n] = RunOperand::Kind::kSameEight;
    } else if (last == 0 && before == 0) {
      rows.kinds[n] = RunOperand::Kind::kSame;
    } else {
      return std::nullopt;
    }
  }
  return rows;
}

class Chain final : public Kernel {
 public:
  Chain(std::vector<Step> steps, Rows rows, std::size_t inputs, int threads)
      : steps_(std::move(steps)), rows_(std::move(rows)), inputs_(inputs), threads_(threads) {
    for (const std::int64_t dim : rows_.outer) {
      count_ *= dim;
    }
    stretch_ = steps_.size() == 1 ? kSingle : kStretch;
    pieces_ = (rows_.length + stretch_ - 1) / stretch_;
  }

  bool may_overwrite(std::size_t input) const override {
    return input < inputs_ && rows_.kinds[input] == RunOperand::Kind::kDense;
  }

  Status run(const KernelRun& run) override {
    const std::int64_t grain = std::max<std::int64_t>(1, kWorthThreads / std::min(rows_.length, stretch_));
    parallel_ranges(threads_, count_ * pieces_, grain, [&](std::int64_t first, std::int64_t last) {
      alignas(32) float results[kMostSteps][kStretch];
      for (std::int64_t i = first; i < last; ++i) {
        stretch(run, i / pieces_, i % pieces_ * stretch_, results);
      }
    });
    return {};
  }

 private:
  void stretch(const KernelRun& run, std::int64_t row, std::int64_t from, float (*results)[kStretch]) const {
    const std::int64_t count = std::min(stretch_, rows_.length - from);
    std::array<RunOperand, kMostInputs> inputs;
    for (std::size_t n = 0; n < inputs_; ++n) {
      std::int64_t at = 0, rest = row;
      for (std::size_t d = rows_.outer.size(); d-- > 0; rest /= rows_.outer[d]) {
        at += rest % rows_.outer[d] * rows_.strides[n][d];
      }
      const bool dense = rows_.kinds[n] == RunOperand::Kind::kDense;
      inputs[n] = {rows_.kinds[n], run.inputs[n].as<float>() + at + (dense ? from : 0)};
    }
    const auto operand = [&](const StepOperand& of) {
      switch (of.kind) {
        case StepOperand::Kind::kInput:
          return inputs[of.index];
        case StepOperand::Kind::kStep:
          return RunOperand{RunOperand::Kind::kDense, results[of.index]};
        default:
          return RunOperand{RunOperand::Kind::kSame, &of.number};
      }
    };
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const bool last = s + 1 == steps_.size();
      float* y = last ? run.outputs[0].out<float>() + row * rows_.length + from : results[s];
      run_step(steps_[s], operand(steps_[s].a), operand(steps_[s].b), y, count);
    }
  }

  const std::vector<Step> steps_;
  const Rows rows_;
  const std::size_t inputs_;
  const int threads_;
  std::int64_t count_ = 1, pieces_ = 1, stretch_ = kStretch;
};

StepOperand input(std::size_t index) { return {StepOperand::Kind::kInput, index, 0}; }
StepOperand result(std::size_t index) { return {StepOperand::Kind::kStep, index, 0}; }

Step activation_step(ActivationKind kind, float alpha = 0, float beta = 0) {
  Step step;
  step.op = StepOp::kActivation;
  step.activation = {kind, alpha, beta};
  step.a = input(0);
  return step;
}

struct Plain {
  const char* op;
  StepOp step;
};
constexpr Plain kPlain[] = {{"Add", StepOp::kAdd},     {"Sub", StepOp::kSub},   {"Mul", StepOp::kMul},
                            {"Div", StepOp::kDiv},     {"Pow", StepOp::kPow},   {"Max", StepOp::kMax},
                            {"Min", StepOp::kMin},     {"Sum", StepOp::kAdd},   {"Abs", StepOp::kAbs},
                            {"Ceil", StepOp::kCeil},   {"Erf", StepOp::kErf},   {"Exp", StepOp::kExp},
                            {"Floor", StepOp::kFloor}, {"Log", StepOp::kLog},   {"Neg", StepOp::kNeg},
                            {"Round", StepOp::kRound}, {"Sqrt", StepOp::kSqrt}, {"Reciprocal", StepOp::kReciprocal}};

// Clip's bounds: attributes until opset 10, then inputs. False: they are not known yet.
bool clip_bounds(const KernelContext& context, Activation& activation) {
  const Node& node = context.node();
  activation = {ActivationKind::kClip, node.get_float("min", std::numeric_limits<float>::lowest()),
                node.get_float("max", std::numeric_limits<float>::max())};
  for (const std::size_t i : {1u, 2u}) {
    if (node.has_input(i)) {
      const Tensor* bound = context.constant(i);
      if (bound == nullptr || bound->elements() != 1) {
        return false;
      }
      (i == 1 ? activation.alpha : activation.beta) = static_cast<float>(bound->as_double(0));
    }
  }
  // Numpy's order: the upper bound has the last word; NaN bounds are left to the reference.
  return activation.alpha <= activation.beta;
}

// What a node computes, as steps over its first `inputs` inputs; empty: not here.
std::vector<Step> steps_of(const KernelContext& context, std::size_t& inputs) {
  const Node& node = context.node();
  inputs = 1;
  if (node.domain == kOwnDomain) {
    if (node.op == "FusedActivation") {
      const Activation activation = activation_of(node);
      return {activation_step(activation.kind, activation.alpha, activation.beta)};
    }
    inputs = context.input_count();
    const auto* texts = std::get_if<std::vector<std::string>>(&node.find("steps")->value);
    auto steps = parse_steps(*texts, inputs);
    return steps.ok() ? std::move(*steps) : std::vector<Step>{};
  }
  for (const Plain& plain : kPlain) {
    if (node.op != plain.op) {
      continue;
    }
    Step step;
    step.op = plain.step;
    step.a = input(0);
    inputs = context.input_count();
    if (!step.binary()) {
      return {step};
    }
    std::vector<Step> steps;
    for (std::size_t i = 1; i < inputs; ++i) {
      step.a = i == 1 ? input(0) : result(i - 2);
      step.b = input(i);
      steps.push_back(step);
    }
    return steps;
  }
  if (node.op == "Clip") {
    Activation clip;
    return clip_bounds(context, clip) ? std::vector<Step>{activation_step(clip.kind, clip.alpha, clip.beta)}
                                      : std::vector<Step>{};
  }
  struct Named {
    const char* op;
    ActivationKind kind;
    float alpha, beta;
  };
  constexpr Named kNamed[] = {{"Relu", ActivationKind::kRelu, 0, 0},
                              {"LeakyRelu", ActivationKind::kLeakyRelu, 0.01f, 0},
                              {"Elu", ActivationKind::kElu, 1, 0},
                              {"Sigmoid", ActivationKind::kSigmoid, 0, 0},
                              {"HardSigmoid", ActivationKind::kHardSigmoid, 0.2f, 0.5f},
                              {"HardSwish", ActivationKind::kHardSwish, 1.0f / 6, 0.5f},
                              {"Tanh", ActivationKind::kTanh, 0, 0}};
  for (const Named& named : kNamed) {
    if (node.op == named.op) {
      return {activation_step(named.kind, node.get_float("alpha", named.alpha), node.get_float("beta", named.beta))};
    }
  }
  return {};
}

Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  const Dims& out = context.output(0).dims;
  std::unique_ptr<Kernel> none;
  if (!has_avx2() || context.output(0).dtype != DType::kFloat || element_count(out) == 0) {
    return none;
  }
  std::size_t inputs = 0;
  std::vector<Step> steps = steps_of(context, inputs);
  if (steps.empty() || steps.size() > kMostSteps || inputs > kMostInputs) {
    return none;
  }
  std::vector<Dims> dims;
  for (std::size_t i = 0; i < inputs; ++i) {
    if (context.input(i).dtype != DType::kFloat) {
      return none;
    }
    dims.push_back(context.input(i).dims);
  }
  auto rows = rows_of(out, dims);
  if (!rows) {
    return none;
  }
  return Result<std::unique_ptr<Kernel>>(
      std::make_unique<Chain>(std::move(steps), std::move(*rows), inputs, context.threads()));
}

}  // namespace

void register_cpu_elementwise(Kernels& kernels) {
  for (const Plain& plain : kPlain) {
    kernels.add("", plain.op, "avx2", make);
  }
  for (const char* op : {"Clip", "Relu", "LeakyRelu", "Elu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"}) {
    kernels.add("", op, "avx2", make);
  }
  kernels.add(kOwnDomain, "FusedActivation", "avx2", make);
  kernels.add(kOwnDomain, "FusedElementwise", "avx2", make);
}

}  // namespace sluice::engine::cpu
