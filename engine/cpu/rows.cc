// Softmax and LayerNormalization.
#include <algorithm>
#include <numeric>

#include "cpu/avx2.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/vector_rows.h"
#include "operators/lambda_kernel.h"

namespace sluice::engine::cpu {
namespace {

constexpr std::int64_t kWorthThreads = 4096;
constexpr std::int64_t kColumns = 64;  // neighbours that go through softmax together

std::int64_t product(const Dims& dims, std::int64_t first, std::int64_t last) {
  return std::accumulate(dims.begin() + first, dims.begin() + last, std::int64_t{1}, std::multiplies<>());
}

bool takes(const KernelContext& context) {
  return has_avx2() && context.input(0).dtype == DType::kFloat && element_count(context.input(0).dims) > 0;
}

Result<std::unique_ptr<Kernel>> make_softmax(KernelContext& context) {
  if (!takes(context)) {
    return std::unique_ptr<Kernel>();
  }
  const Node& node = context.node();
  const Dims& dims = context.input(0).dims;
  const auto rank = static_cast<std::int64_t>(dims.size());
  std::int64_t axis = node.get_int("axis", node.opset < 13 ? 1 : -1);
  axis += axis < 0 ? rank : 0;
  // Until opset 12 all dimensions from the axis on are one.
  const std::int64_t count = node.opset < 13 ? product(dims, axis, rank) : rank == 0 ? 1 : dims[axis];
  const std::int64_t inner = node.opset < 13 || rank == 0 ? 1 : product(dims, axis + 1, rank);
  const std::int64_t outer = element_count(dims) / (count * inner);
  const int threads = context.threads();
  if (inner == 1) {
    const std::int64_t grain = std::max<std::int64_t>(1, kWorthThreads / count);
    return make_kernel([=](const KernelRun& run) {
      parallel_ranges(threads, outer, grain, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
          softmax_row(run.inputs[0].as<float>() + row * count, count, run.outputs[0].out<float>() + row * count);
        }
      });
    });
  }
  const std::int64_t pieces = (inner + kColumns - 1) / kColumns;
  const std::int64_t grain = std::max<std::int64_t>(1, kWorthThreads / (count * kColumns));
  return make_kernel([=](const KernelRun& run) {
    parallel_ranges(threads, outer * pieces, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t from = i % pieces * kColumns, at = i / pieces * count * inner + from;
        softmax_columns(run.inputs[0].as<float>() + at, count, inner, std::min(kColumns, inner - from),
                        run.outputs[0].out<float>() + at);
      }
    });
  });
}

Result<std::unique_ptr<Kernel>> make_layer_normalization(KernelContext& context) {
  const Node& node = context.node();
  if (!takes(context) || context.has_output(1) || context.has_output(2)) {
    return std::unique_ptr<Kernel>();
  }
  const Dims& dims = context.input(0).dims;
  const auto rank = static_cast<std::int64_t>(dims.size());
  std::int64_t axis = node.get_int("axis", -1);
  axis += axis < 0 ? rank : 0;
  const std::int64_t count = product(dims, axis, rank), rows = element_count(dims) / count;
  const bool biased = context.has_input(2);
  if (element_count(context.input(1).dims) != count || (biased && element_count(context.input(2).dims) != count)) {
    return std::unique_ptr<Kernel>();
  }
  const float epsilon = node.get_float("epsilon", 1e-5f);
  const int threads = context.threads();
  const std::int64_t grain = std::max<std::int64_t>(1, kWorthThreads / count);
  return make_kernel([=](const KernelRun& run) {
    const float* bias = biased ? run.inputs[2].as<float>() : nullptr;
    parallel_ranges(threads, rows, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        normalize_row(run.inputs[0].as<float>() + row * count, count, epsilon, run.inputs[1].as<float>(), bias,
                      run.outputs[0].out<float>() + row * count);
      }
    });
  });
}

}  // namespace

void register_cpu_rows(Kernels& kernels) {
  kernels.add("", "Softmax", "avx2", make_softmax);
  kernels.add("", "LayerNormalization", "avx2", make_layer_normalization);
}

}  // namespace sluice::engine::cpu
