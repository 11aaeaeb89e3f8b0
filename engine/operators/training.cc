// The optimisers of ai.onnx.preview.training: one step for a list of tensors. Formulas:
// https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html and its neighbours.
#include <cmath>

#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// Inputs: the rate R, the count of updates T, then groups of n tensors: X, the gradients G, and the states. Outputs:
// the new X and the new states.
template <std::size_t states>
Status infer(ShapeContext& context) {
  const std::size_t results = context.node().outputs.size(), n = results / (states + 1);
  if (results != n * (states + 1) || context.input_count() != 2 + n * (states + 2) ||
      element_count(context.dims(0)) != 1 || element_count(context.dims(1)) != 1) {
    return context.error(Code::kInvalidArgument, "the numbers of its inputs and outputs do not fit");
  }
  for (std::size_t i = 2; i < context.input_count(); ++i) {
    if (context.dims(i) != context.dims(2 + (i - 2) % n)) {
      return context.error(Code::kInvalidArgument, "input %zu has another shape than the tensor it belongs to", i);
    }
  }
  for (std::size_t i = 0; i < results; ++i) {
    if (Status status = context.set(i, context.dims(2 + i % n)); !status.ok()) {
      return status;
    }
  }
  return {};
}

// Calls update(rate, t, x, gradient, state, x_new, state_new) for each element; states are arrays of pointers to it.
template <std::size_t states, class Update>
Result<std::unique_ptr<Kernel>> make_step(const KernelContext& context, Update update) {
  const std::size_t n = context.node().outputs.size() / (states + 1);
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < n; ++i) {
    counts.push_back(element_count(context.output(i).dims));
  }
  return make_kernel([counts, n, update](const KernelRun& run) {
    const float rate = run.inputs[0].as<float>()[0];
    const auto t = static_cast<float>(run.inputs[1].as<std::int64_t>()[0]);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < counts[i]; ++k) {
        float state[states];
        for (std::size_t s = 0; s < states; ++s) {
          state[s] = run.inputs[2 + (s + 2) * n + i].as<float>()[k];
        }
        const float x = run.inputs[2 + i].as<float>()[k];
        run.outputs[i].out<float>()[k] = update(rate, t, x, run.inputs[2 + n + i].as<float>()[k], state);
        for (std::size_t s = 0; s < states; ++s) {
          run.outputs[(s + 1) * n + i].out<float>()[k] = state[s];
        }
      }
    }
  });
}

Result<std::unique_ptr<Kernel>> adagrad(KernelContext& context) {
  const Node& node = context.node();
  const float decay = node.get_float("decay_factor", 0), epsilon = node.get_float("epsilon", 1e-6f);
  const float norm = node.get_float("norm_coefficient", 0);
  return make_step<1>(context, [=](float rate, float t, float x, float gradient, float* state) {
    const float g = norm * x + gradient;
    state[0] += g * g;
    return x - rate / (1 + t * decay) * g / (std::sqrt(state[0]) + epsilon);
  });
}

Result<std::unique_ptr<Kernel>> momentum(KernelContext& context) {
  const Node& node = context.node();
  const float alpha = node.get_float("alpha", 0), beta = node.get_float("beta", 0);
  const float norm = node.get_float("norm_coefficient", 0);
  const bool nesterov = node.get_string("mode", "") == "nesterov";
  return make_step<1>(context, [=](float rate, float t, float x, float gradient, float* state) {
    const float g = norm * x + gradient;
    state[0] = alpha * state[0] + (t > 0 ? beta : 1) * g;
    return x - rate * (nesterov ? g + alpha * state[0] : state[0]);
  });
}

Status check_momentum(const Node& node) {
  const std::string mode = node.get_string("mode", "");
  return mode == "standard" || mode == "nesterov" ? Status() : refuse(node, "its mode", "use standard or nesterov");
}

Result<std::unique_ptr<Kernel>> adam(KernelContext& context) {
  const Node& node = context.node();
  const float alpha = node.get_float("alpha", 0.9f), beta = node.get_float("beta", 0.999f);
  const float epsilon = node.get_float("epsilon", 1e-6f), norm = node.get_float("norm_coefficient", 0);
  const float norm_after = node.get_float("norm_coefficient_post", 0);
  return make_step<2>(context, [=](float rate, float t, float x, float gradient, float* state) {
    const float g = norm * x + gradient;
    state[0] = alpha * state[0] + (1 - alpha) * g;
    state[1] = beta * state[1] + (1 - beta) * g * g;
    const float adjusted = t > 0 ? rate * std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t)) : rate;
    return (1 - norm_after) * (x - adjusted * state[0] / (std::sqrt(state[1]) + epsilon));
  });
}

// ONNX's definition says 1e-6 where there is none, its own test data were made with 1e-2.
Status check_adam(const Node& node) {
  return node.has("epsilon") ? Status() : refuse(node, "no epsilon", "export the model with the attribute");
}

}  // namespace

void register_training(Registry& registry) {
  const auto add = [&](const char* op, const char* attributes, InferShapes infer_shapes, MakeKernel kernel,
                       Status (*check)(const Node&)) {
    registry.add({.op = op,
                  .first = 1,
                  .last = 1,
                  .inputs = "R:T, T:I, inputs:T*",
                  .outputs = "outputs:T*",
                  .attributes = attributes,
                  .types = {{"T", kFloat32}, {"I", kInt64s}},
                  .infer = infer_shapes,
                  .kernel = kernel,
                  .check = check,
                  .domain = "ai.onnx.preview.training"});
  };
  add("Adagrad", "decay_factor:float, epsilon:float, norm_coefficient:float", infer<1>, adagrad, nullptr);
  add("Momentum", "alpha:float!, beta:float!, mode:string!, norm_coefficient:float!", infer<1>, momentum,
      check_momentum);
  add("Adam", "alpha:float, beta:float, epsilon:float, norm_coefficient:float, norm_coefficient_post:float", infer<2>,
      adam, check_adam);
}

}  // namespace sluice::engine
