// BatchNormalization, InstanceNormalization and LayerNormalization.
#include <cmath>

#include "operators/dispatch.h"
#include "operators/element.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

struct Moments {
  double mean = 0, variance = 0;
};

// Of `count` blocks of `length` elements, `step` apart. The variance is the population's.
template <class T>
Moments moments(const T* x, std::int64_t count, std::int64_t step, std::int64_t length) {
  Moments result;
  const auto total = static_cast<double>(count * length);
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t i = 0; i < length; ++i) {
      result.mean += static_cast<double>(static_cast<ComputeType<T>>(x[n * step + i]));
    }
  }
  result.mean /= total;
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t i = 0; i < length; ++i) {
      const double difference = static_cast<double>(static_cast<ComputeType<T>>(x[n * step + i])) - result.mean;
      result.variance += difference * difference;
    }
  }
  result.variance /= total;
  return result;
}

// y = (x - mean) * factor + shift, in T's compute type.
template <class T>
void scale_line(const T* x, T* y, std::int64_t length, double mean, double factor, double shift) {
  using A = ComputeType<T>;
  const A a = static_cast<A>(mean), b = static_cast<A>(factor), c = static_cast<A>(shift);
  for (std::int64_t i = 0; i < length; ++i) {
    y[i] = static_cast<T>((static_cast<A>(x[i]) - a) * b + c);
  }
}

// A tensor [N, C, ...] as images.
struct Images {
  std::int64_t batch = 0, channels = 0, length = 0;
};

Images images_of(const Dims& dims) {
  return {dims[0], dims.size() > 1 ? dims[1] : 1,
          dims.size() > 2 ? element_count(Dims(dims.begin() + 2, dims.end())) : 1};
}

Status check_channels(const ShapeContext& context, std::size_t first, std::size_t last) {
  const Dims& dims = context.dims(0);
  const Dims channels = {dims.size() > 1 ? dims[1] : 1};
  for (std::size_t i = first; i <= last; ++i) {
    if (dims.empty() || context.dims(i) != channels) {
      return context.error(Code::kInvalidArgument, "input %zu of shape %s for the channels of %s", i,
                           to_string(context.dims(i)).c_str(), to_string(dims).c_str());
    }
  }
  return {};
}

// ---- BatchNormalization ----

bool trains(const Node& node) { return node.get_int("training_mode", 0) != 0; }

Status check_batch(const Node& node) {
  if (node.get_int("spatial", 1) != 1) {
    return refuse(node, "spatial 0", "export the model with opset 9 or later");
  }
  if (node.get_int("is_test", 1) != 1) {
    return refuse(node, "is_test 0", "export the model for inference");
  }
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.has_output(i) && !trains(node)) {
      return refuse(node, "statistics as results outside of training", "export the model for inference");
    }
  }
  return {};
}

Status infer_batch(ShapeContext& context) {
  if (Status status = check_channels(context, 1, 4); !status.ok()) {
    return status;
  }
  if (trains(context.node()) && element_count(context.dims(0)) == 0) {
    return context.error(Code::kInvalidArgument, "training on no data");
  }
  for (std::size_t i = 1; i < 3; ++i) {
    if (Status status = context.set(i, context.dims(1)); !status.ok()) {
      return status;
    }
  }
  return context.set(0, context.dims(0));
}

Result<std::unique_ptr<Kernel>> batch_kernel(KernelContext& context) {
  const Node& node = context.node();
  const Images s = images_of(context.input(0).dims);
  const auto epsilon = static_cast<double>(node.get_float("epsilon", 1e-5f));
  const auto momentum = static_cast<double>(node.get_float("momentum", 0.9f));
  const bool training = trains(node);
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t c = 0; c < s.channels; ++c) {
        Moments of{float_element(run.inputs[3], c), float_element(run.inputs[4], c)};
        if (training) {
          const Moments before = of;
          of = moments(x + c * s.length, s.batch, s.channels * s.length, s.length);
          const double running[] = {before.mean * momentum + of.mean * (1 - momentum),
                                    before.variance * momentum + of.variance * (1 - momentum)};
          for (std::size_t i = 1; i < run.outputs.size(); ++i) {
            if (run.outputs[i].present()) {
              set_float_element(run.outputs[i], c, running[i - 1]);
            }
          }
        }
        const double factor = float_element(run.inputs[1], c) / std::sqrt(of.variance + epsilon);
        const double shift = float_element(run.inputs[2], c);
        for (std::int64_t n = 0; n < s.batch; ++n) {
          const std::int64_t start = (n * s.channels + c) * s.length;
          scale_line(x + start, y + start, s.length, of.mean, factor, shift);
        }
      }
    });
  });
}

// ---- InstanceNormalization ----

Status infer_instance(ShapeContext& context) {
  if (context.rank(0) < 3) {
    return context.error(Code::kInvalidArgument, "%s has no spatial dimensions", to_string(context.dims(0)).c_str());
  }
  if (Status status = check_channels(context, 1, 2); !status.ok()) {
    return status;
  }
  return context.set(0, context.dims(0));
}

Result<std::unique_ptr<Kernel>> instance_kernel(KernelContext& context) {
  const Images s = images_of(context.input(0).dims);
  const auto epsilon = static_cast<double>(context.node().get_float("epsilon", 1e-5f));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t n = 0; n < s.batch * s.channels; ++n, x += s.length, y += s.length) {
        const Moments of = moments(x, 1, 0, s.length);
        const std::int64_t c = n % s.channels;
        scale_line(x, y, s.length, of.mean, float_element(run.inputs[1], c) / std::sqrt(of.variance + epsilon),
                   float_element(run.inputs[2], c));
      }
    });
  });
}

// ---- LayerNormalization ----

Status check_layer(const Node& node) {
  if (node.get_int("stash_type", 1) != static_cast<std::int64_t>(DType::kFloat)) {
    return refuse(node, "a stash_type other than float", "export the model with stash_type 1");
  }
  return {};
}

Status infer_layer(ShapeContext& context) {
  const Dims& dims = context.dims(0);
  auto axis = context.axis(context.node().get_int("axis", -1), context.rank(0));
  if (!axis.ok()) {
    return axis.status();
  }
  Dims normalized(dims.begin() + *axis, dims.end()), statistics = dims;
  for (std::size_t i = 1; i < context.input_count(); ++i) {
    if (!context.has_input(i)) {
      continue;
    }
    // Broadcast to the normalized dimensions: ours are stored densely, so a repeated one is refused.
    Dims given = context.dims(i);
    while (given.size() > normalized.size() && given.front() == 1) {
      given.erase(given.begin());
    }
    if (element_count(given) != element_count(normalized)) {
      return refuse(context.node(),
                    "a scale or bias of shape " + to_string(context.dims(i)) + " for " + to_string(dims),
                    "export the model with one element for each that is normalized");
    }
    Dims padded(normalized.size() - std::min(given.size(), normalized.size()), 1);
    padded.insert(padded.end(), given.begin(), given.end());
    if (padded != normalized) {
      return context.error(Code::kInvalidArgument, "a scale or bias of shape %s for %s",
                           to_string(context.dims(i)).c_str(), to_string(dims).c_str());
    }
  }
  std::fill(statistics.begin() + *axis, statistics.end(), 1);
  for (std::size_t i = 1; i < 3; ++i) {
    if (Status status = context.set(i, statistics); !status.ok()) {
      return status;
    }
  }
  return context.set(0, dims);
}

Result<std::unique_ptr<Kernel>> layer_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  std::int64_t axis = context.node().get_int("axis", -1);
  axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
  const std::int64_t outer = element_count(Dims(dims.begin(), dims.begin() + axis));
  const std::int64_t length = element_count(Dims(dims.begin() + axis, dims.end()));
  const auto epsilon = static_cast<double>(context.node().get_float("epsilon", 1e-5f));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([outer, length, epsilon](const KernelRun& run) {
      using A = ComputeType<T>;
      const T* x = run.inputs[0].as<T>();
      const T* scale = run.inputs[1].as<T>();
      const T* bias = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<T>() : nullptr;
      T* y = run.outputs[0].out<T>();
      for (std::int64_t o = 0; o < outer; ++o, x += length, y += length) {
        const Moments of = moments(x, 1, 0, length);
        const double inverse = 1 / std::sqrt(of.variance + epsilon);
        const double results[] = {of.mean, inverse};
        for (std::size_t i = 1; i < run.outputs.size(); ++i) {
          if (run.outputs[i].present()) {
            set_float_element(run.outputs[i], o, results[i - 1]);
          }
        }
        const A mean = static_cast<A>(of.mean), factor = static_cast<A>(inverse);
        for (std::int64_t i = 0; i < length; ++i) {
          const A shift = bias != nullptr ? static_cast<A>(bias[i]) : A{0};
          y[i] = static_cast<T>((static_cast<A>(x[i]) - mean) * factor * static_cast<A>(scale[i]) + shift);
        }
      }
    });
  });
}

}  // namespace

void register_normalization(Registry& registry) {
  const auto batch = [&](int first, int last, const char* inputs, const char* outputs, const char* attributes) {
    registry.add({.op = "BatchNormalization",
                  .first = first,
                  .last = last,
                  .inputs = inputs,
                  .outputs = outputs,
                  .attributes = attributes,
                  .types = {{"T", kFloats}, {"U", kFloats}, {"V", kFloats}},
                  .infer = infer_batch,
                  .kernel = batch_kernel,
                  .check = check_batch});
  };
  const char* const same = "X:T, scale:T, B:T, mean:T, var:T";
  const char* const five = "Y:T, mean:T?, var:T?, saved_mean:T?, saved_var:T?";
  batch(6, 6, same, five, "epsilon:float, is_test:int!, momentum:float, spatial:int");
  batch(7, 8, same, five, "epsilon:float, momentum:float, spatial:int");
  batch(9, 13, same, five, "epsilon:float, momentum:float");
  batch(14, 14, "X:T, scale:T, B:T, input_mean:U, input_var:U", "Y:T, running_mean:U?, running_var:U?",
        "epsilon:float, momentum:float, training_mode:int");
  batch(15, 17, "X:T, scale:V, B:V, input_mean:U, input_var:U", "Y:T, running_mean:U?, running_var:U?",
        "epsilon:float, momentum:float, training_mode:int");
  registry.add({.op = "InstanceNormalization",
                .inputs = "input:T, scale:T, B:T",
                .outputs = "output:T",
                .attributes = "epsilon:float",
                .types = {{"T", kFloats}},
                .infer = infer_instance,
                .kernel = instance_kernel});
  registry.add({.op = "LayerNormalization",
                .first = 17,
                .inputs = "X:T, Scale:T, B:T?",
                .outputs = "Y:T, Mean:U?, InvStdDev:U?",
                .attributes = "axis:int, epsilon:float, stash_type:int",
                .types = {{"T", kFloats}, {"U", kFloat32}},
                .infer = infer_layer,
                .kernel = layer_kernel,
                .check = check_layer});
}

}  // namespace sluice::engine
