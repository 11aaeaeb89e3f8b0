// LRN, LpNormalization and MeanVarianceNormalization.
#include <algorithm>
#include <cmath>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"
#include "operators/window.h"

namespace sluice::engine {
namespace {

Status infer_same(ShapeContext& context) { return context.set(0, context.dims(0)); }

// ---- LRN: across channels ----

Status check_lrn(const Node& node) {
  return node.get_int("size", 1) >= 1 ? Status() : refuse(node, "a size below 1", "export the model with a size");
}

Status infer_lrn(ShapeContext& context) {
  if (context.rank(0) < 2) {
    return context.error(Code::kInvalidArgument, "%s has no channels", to_string(context.dims(0)).c_str());
  }
  return infer_same(context);
}

Result<std::unique_ptr<Kernel>> lrn_kernel(KernelContext& context) {
  const Node& node = context.node();
  const Dims& dims = context.input(0).dims;
  const std::int64_t batch = dims[0], channels = dims[1], image = element_count(spatial(dims));
  const std::int64_t size = std::min(node.get_int("size", 1), 2 * channels + 1);
  const double scale =
      static_cast<double>(node.get_float("alpha", 1e-4f)) / static_cast<double>(node.get_int("size", 1));
  const auto beta = static_cast<double>(node.get_float("beta", 0.75f));
  const auto bias = static_cast<double>(node.get_float("bias", 1.0f));
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      using A = ComputeType<T>;
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t n = 0; n < batch; ++n, x += channels * image, y += channels * image) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t lo = std::max<std::int64_t>(0, c - (size - 1) / 2);
          const std::int64_t hi = std::min(channels - 1, c + size / 2);
          for (std::int64_t i = 0; i < image; ++i) {
            double sum = 0;
            for (std::int64_t other = lo; other <= hi; ++other) {
              const auto value = static_cast<double>(static_cast<A>(x[other * image + i]));
              sum += value * value;
            }
            y[c * image + i] = static_cast<T>(static_cast<A>(static_cast<double>(static_cast<A>(x[c * image + i])) /
                                                             std::pow(bias + scale * sum, beta)));
          }
        }
      }
    });
  });
}

// ---- LpNormalization ----

Status check_lp(const Node& node) {
  const std::int64_t p = node.get_int("p", 2);
  return p == 1 || p == 2 ? Status() : refuse(node, "a norm p other than 1 or 2", "export the model with one of them");
}

Status infer_lp(ShapeContext& context) {
  if (auto axis = context.axis(context.node().get_int("axis", -1), context.rank(0)); !axis.ok()) {
    return axis.status();
  }
  return infer_same(context);
}

Result<std::unique_ptr<Kernel>> lp_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  std::int64_t axis = context.node().get_int("axis", -1);
  axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
  const std::int64_t outer = element_count(Dims(dims.begin(), dims.begin() + axis));
  const std::int64_t length = dims[static_cast<std::size_t>(axis)];
  const std::int64_t inner = element_count(Dims(dims.begin() + axis + 1, dims.end()));
  const bool squared = context.node().get_int("p", 2) == 2;
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([=](const KernelRun& run) {
      using A = ComputeType<T>;
      for (std::int64_t line = 0; line < outer * inner; ++line) {
        const std::int64_t first = line / inner * length * inner + line % inner;
        const T* x = run.inputs[0].as<T>() + first;
        T* y = run.outputs[0].out<T>() + first;
        double sum = 0;
        for (std::int64_t i = 0; i < length; ++i) {
          const auto value = static_cast<double>(static_cast<A>(x[i * inner]));
          sum += squared ? value * value : std::fabs(value);
        }
        const double norm = squared ? std::sqrt(sum) : sum;
        for (std::int64_t i = 0; i < length; ++i) {
          // A line of zeros stays one.
          const auto value = static_cast<double>(static_cast<A>(x[i * inner]));
          y[i * inner] = static_cast<T>(static_cast<A>(norm == 0 ? 0 : value / norm));
        }
      }
    });
  });
}

// ---- MeanVarianceNormalization ----

Status infer_mvn(ShapeContext& context) {
  for (const std::int64_t value : context.node().get_ints("axes", {0, 2, 3})) {
    if (auto axis = context.axis(value, context.rank(0)); !axis.ok()) {
      return axis.status();
    }
  }
  return infer_same(context);
}

Result<std::unique_ptr<Kernel>> mvn_kernel(KernelContext& context) {
  const Dims& dims = context.input(0).dims;
  Dims kept = dims;
  for (const std::int64_t axis : context.node().get_ints("axes", {0, 2, 3})) {
    kept[static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(dims.size()) : axis)] = 1;
  }
  const std::int64_t count = element_count(dims), groups = element_count(kept);
  const BroadcastWalk<1> walk(dims, {kept});
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel(
        [=](const KernelRun& run) {
          using A = ComputeType<T>;
          const T* x = run.inputs[0].as<T>();
          T* y = run.outputs[0].out<T>();
          auto* means = reinterpret_cast<double*>(run.scratch);
          double* deviations = means + groups;
          std::fill_n(means, 2 * groups, 0.0);
          const auto each = [&](auto f) {
            walk.for_each_row([&](std::int64_t out, const std::array<std::int64_t, 1>& offsets, std::int64_t length,
                                  const std::array<std::int64_t, 1>& steps) {
              for (std::int64_t i = 0; i < length; ++i) {
                f(out + i, offsets[0] + i * steps[0]);
              }
            });
          };
          const auto share = static_cast<double>(groups) / static_cast<double>(count);
          each([&](std::int64_t i, std::int64_t g) { means[g] += static_cast<double>(static_cast<A>(x[i])) * share; });
          each([&](std::int64_t i, std::int64_t g) {
            const double difference = static_cast<double>(static_cast<A>(x[i])) - means[g];
            deviations[g] += difference * difference * share;
          });
          each([&](std::int64_t i, std::int64_t g) {  // 1e-9 as in ONNX's definition by other operators
            const double value =
                (static_cast<double>(static_cast<A>(x[i])) - means[g]) / (std::sqrt(deviations[g]) + 1e-9);
            y[i] = static_cast<T>(static_cast<A>(value));
          });
        },
        static_cast<std::size_t>(groups) * 2 * sizeof(double));
  });
}

}  // namespace

void register_axis_normalization(Registry& registry) {
  registry.add({.op = "LRN",
                .inputs = "X:T",
                .outputs = "Y:T",
                .attributes = "alpha:float, beta:float, bias:float, size:int!",
                .types = {{"T", kFloats}},
                .infer = infer_lrn,
                .kernel = lrn_kernel,
                .check = check_lrn});
  registry.add({.op = "LpNormalization",
                .inputs = "input:T",
                .outputs = "output:T",
                .attributes = "axis:int, p:int",
                .types = {{"T", kFloats}},
                .infer = infer_lp,
                .kernel = lp_kernel,
                .check = check_lp});
  registry.add({.op = "MeanVarianceNormalization",
                .first = 9,
                .inputs = "X:T",
                .outputs = "Y:T",
                .attributes = "axes:ints",
                .types = {{"T", kFloats}},
                .infer = infer_mvn,
                .kernel = mvn_kernel});
}

}  // namespace sluice::engine
