// NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss and Dropout: what training graphs end in or carry.
#include <cmath>
#include <cstring>

#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"
#include "operators/window.h"

namespace sluice::engine {
namespace {

// scores [N, C, D1, ...] and labels [N, D1, ...], with the D's as one.
struct LossShape {
  std::int64_t batch = 0, classes = 0, positions = 0;
};

LossShape loss_shape(const Dims& scores) { return {scores[0], scores[1], element_count(spatial(scores))}; }

enum class Reduction { kNone, kSum, kMean };

Reduction reduction_of(const Node& node) {
  const std::string name = node.get_string("reduction", "mean");
  return name == "none" ? Reduction::kNone : name == "sum" ? Reduction::kSum : Reduction::kMean;
}

Status check_loss(const Node& node) {
  const std::string name = node.get_string("reduction", "mean");
  if (name != "none" && name != "sum" && name != "mean") {
    return refuse(node, "reduction '" + name.substr(0, 20) + "'", "use none, sum or mean");
  }
  return {};
}

Status infer_loss(ShapeContext& context) {
  const Dims &scores = context.dims(0), &labels = context.dims(1);
  Dims expected = scores;
  if (scores.size() >= 2) {
    expected.erase(expected.begin() + 1);
  }
  if (scores.size() < 2 || labels != expected) {
    return context.error(Code::kInvalidArgument, "labels of shape %s for scores of shape %s", to_string(labels).c_str(),
                         to_string(scores).c_str());
  }
  if (context.has_input(2) && context.dims(2) != Dims{scores[1]}) {
    return context.error(Code::kInvalidArgument, "weights of shape %s for %lld classes",
                         to_string(context.dims(2)).c_str(), static_cast<long long>(scores[1]));
  }
  if (Status status = context.set(1, scores); !status.ok()) {
    return status;
  }
  return context.set(0, reduction_of(context.node()) == Reduction::kNone ? expected : Dims{});
}

// log(softmax(x)) of one position; `step` between classes.
template <class T, class A>
A log_sum_of(const T* x, std::int64_t classes, std::int64_t step, A& max) {
  max = static_cast<A>(x[0]);
  for (std::int64_t c = 1; c < classes; ++c) {
    max = std::max(max, static_cast<A>(x[c * step]));
  }
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    sum += std::exp(static_cast<double>(static_cast<A>(x[c * step]) - max));
  }
  return static_cast<A>(std::log(sum));
}

struct LossOptions {
  Reduction reduction = Reduction::kMean;
  bool softmax = false;
  bool ignores = false;
  std::int64_t ignored = 0;
};

// Position p = (n, d) of `shape`, and the element of its class c.
template <class T, class I>
Status compute_loss(const LossShape& shape, const LossOptions& options, const Node& node, const KernelRun& run) {
  using A = ComputeType<T>;
  const T* scores = run.inputs[0].as<T>();
  const I* labels = run.inputs[1].as<I>();
  const T* weights = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<T>() : nullptr;
  T* y = run.outputs[0].out<T>();
  T* log_prob = run.outputs.size() > 1 && run.outputs[1].present() ? run.outputs[1].out<T>() : nullptr;
  double sum = 0, weight_sum = 0;
  for (std::int64_t p = 0; p < shape.batch * shape.positions; ++p) {
    const std::int64_t first = p / shape.positions * shape.classes * shape.positions + p % shape.positions;
    A max{}, log_sum{};
    if (options.softmax && shape.classes > 0) {
      log_sum = log_sum_of<T, A>(scores + first, shape.classes, shape.positions, max);
    }
    for (std::int64_t c = 0; log_prob != nullptr && c < shape.classes; ++c) {
      const std::int64_t i = first + c * shape.positions;
      log_prob[i] = static_cast<T>(static_cast<A>(scores[i]) - max - log_sum);
    }
    const auto label = static_cast<std::int64_t>(labels[p]);
    A loss{};
    if (!options.ignores || label != options.ignored) {
      if (label < 0 || label >= shape.classes) {
        return Status::error(Code::kInvalidArgument, "%s: label %lld is outside [0, %lld)", describe(node).c_str(),
                             static_cast<long long>(label), static_cast<long long>(shape.classes));
      }
      const A weight = weights != nullptr ? static_cast<A>(weights[label]) : A{1};
      loss = -weight * (static_cast<A>(scores[first + label * shape.positions]) - max - log_sum);
      weight_sum += static_cast<double>(weight);
    }
    sum += static_cast<double>(loss);
    if (options.reduction == Reduction::kNone) {
      y[p] = static_cast<T>(loss);
    }
  }
  if (options.reduction != Reduction::kNone) {
    y[0] = static_cast<T>(static_cast<A>(options.reduction == Reduction::kSum ? sum : sum / weight_sum));
  }
  return {};
}

template <bool softmax>
Result<std::unique_ptr<Kernel>> loss_kernel(KernelContext& context) {
  const Node& node = context.node();
  const LossShape shape = loss_shape(context.input(0).dims);
  const LossOptions options{reduction_of(node), softmax, node.has("ignore_index"), node.get_int("ignore_index", 0)};
  const bool wide = context.input(1).dtype == DType::kInt64;
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([shape, options, wide, node](const KernelRun& run) {
      return wide ? compute_loss<T, std::int64_t>(shape, options, node, run)
                  : compute_loss<T, std::int32_t>(shape, options, node, run);
    });
  });
}

// ---- Dropout: for inference, it is its input ----

Status infer_dropout(ShapeContext& context) {
  const Tensor* training = context.constant(2);
  if (context.has_input(2) && (training == nullptr || training->elements() != 1)) {
    return context.error(Code::kInvalidArgument, "training_mode is no known scalar");
  }
  if (training != nullptr && training->as_int(0) != 0) {
    const Tensor* ratio = context.constant(1);
    if (ratio == nullptr || ratio->elements() != 1 || ratio->as_double(0) != 0) {
      return refuse(context.node(), "dropping in training mode", "export the model for inference");
    }
  }
  for (const std::size_t output : {0u, 1u}) {
    if (Status status = context.set(output, context.dims(0)); !status.ok()) {
      return status;
    }
  }
  return {};
}

Result<std::unique_ptr<Kernel>> dropout_kernel(KernelContext& context) {
  const auto count = static_cast<std::size_t>(element_count(context.output(0).dims));
  const std::size_t bytes = count * dtype_bytes(context.output(0).dtype);
  return make_kernel([count, bytes](const KernelRun& run) {
    if (count > 0) {
      std::memcpy(run.outputs[0].data, run.inputs[0].data, bytes);
    }
    if (count > 0 && run.outputs.size() > 1 && run.outputs[1].present()) {
      std::memset(run.outputs[1].data, 1, count);
    }
  });
}

}  // namespace

void register_losses(Registry& registry) {
  registry.add({.op = "NegativeLogLikelihoodLoss",
                .first = 12,
                .inputs = "input:T, target:I, weight:T?",
                .outputs = "loss:T",
                .attributes = "ignore_index:int, reduction:string",
                .types = {{"T", kFloats}, {"I", kIndices}},
                .infer = infer_loss,
                .kernel = loss_kernel<false>,
                .check = check_loss});
  registry.add({.op = "SoftmaxCrossEntropyLoss",
                .first = 12,
                .inputs = "scores:T, labels:I, weights:T?",
                .outputs = "output:T, log_prob:T?",
                .attributes = "ignore_index:int, reduction:string",
                .types = {{"T", kFloats}, {"I", kIndices}},
                .infer = infer_loss,
                .kernel = loss_kernel<true>,
                .check = check_loss});
  const auto dropout = [&](int first, int last, const char* inputs, const char* outputs, const char* attributes) {
    Operator definition{.op = "Dropout",
                        .first = first,
                        .last = last,
                        .inputs = inputs,
                        .outputs = outputs,
                        .attributes = attributes,
                        .types = {{"T", kFloats}, {"B", kBools}, {"R", kFloats}},
                        .infer = infer_dropout,
                        .kernel = dropout_kernel};
    if (first >= 12) {
      definition.shape_inputs = {1, 2};
    }
    registry.add(std::move(definition));
  };
  dropout(7, 9, "data:T", "output:T", "ratio:float");
  dropout(10, 11, "data:T", "output:T, mask:B?", "ratio:float");
  dropout(12, 17, "data:T, ratio:R?, training_mode:B?", "output:T, mask:B?", "seed:int");
}

}  // namespace sluice::engine
