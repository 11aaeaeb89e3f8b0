// FusedAttention; fused.cc says what it computes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

Status infer(ShapeContext& context) {
  const Node& node = context.node();
  const std::int64_t heads = node.get_int("heads", 0), size = node.get_int("head_size", 0);
  const auto offsets = node.get_ints("offsets", {0, 0, 0});
  for (std::size_t i = 0; i < 3; ++i) {
    const Dims& dims = context.dims(i);
    if (dims.size() != 3 || dims[0] != context.dims(0)[0] || (i == 2 && dims[1] != context.dims(1)[1]) ||
        offsets[i] + heads * size > dims[2]) {
      return context.error(Code::kInvalidArgument, "Q, K and V do not fit: %s, %s, %s",
                           to_string(context.dims(0)).c_str(), to_string(context.dims(1)).c_str(),
                           to_string(context.dims(2)).c_str());
    }
  }
  const Dims scores = {context.dims(0)[0], heads, context.dims(0)[1], context.dims(1)[1]};
  if (context.has_input(3)) {
    auto wide = broadcast_dims(context, scores, context.dims(3));
    if (!wide.ok() || *wide != scores) {
      return context.error(Code::kInvalidArgument, "the mask %s does not fit %s", to_string(context.dims(3)).c_str(),
                           to_string(scores).c_str());
    }
  }
  return context.set(0, {scores[0], scores[2], heads * size});
}

Status check(const Node& node) {
  const auto offsets = node.get_ints("offsets", {0, 0, 0});
  const bool sound = node.get_int("heads", 0) > 0 && node.get_int("head_size", 0) > 0 && offsets.size() == 3 &&
                     std::all_of(offsets.begin(), offsets.end(), [](std::int64_t offset) { return offset >= 0; });
  return sound ? Status{} : refuse(node, "its heads or offsets are out of range", "switch off the pass that made it");
}

template <class T>
Result<std::unique_ptr<Kernel>> typed(const KernelContext& context) {
  const Node& node = context.node();
  const std::int64_t heads = node.get_int("heads", 0), size = node.get_int("head_size", 0);
  const float scale = node.get_float("scale", 1);
  const auto offsets = node.get_ints("offsets", {0, 0, 0});
  const Dims q = context.input(0).dims, k = context.input(1).dims, v = context.input(2).dims;
  Dims mask_strides(4, 0);
  if (context.has_input(3)) {
    const Dims& mask = context.input(3).dims;
    const Dims own = strides_of(mask);
    for (std::size_t d = 0; d < mask.size(); ++d) {
      mask_strides[4 - mask.size() + d] = mask[d] == 1 ? 0 : own[d];
    }
  }
  return make_kernel([=, row = std::vector<float>(static_cast<std::size_t>(k[1]))](const KernelRun& run) mutable {
    const T* mask = run.inputs.size() > 3 && run.inputs[3].present() ? run.inputs[3].as<T>() : nullptr;
    for (std::int64_t b = 0; b < q[0]; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t s = 0; s < q[1]; ++s) {
          const T* query = run.inputs[0].as<T>() + (b * q[1] + s) * q[2] + offsets[0] + h * size;
          float most = -std::numeric_limits<float>::infinity();
          for (std::int64_t t = 0; t < k[1]; ++t) {
            const T* key = run.inputs[1].as<T>() + (b * k[1] + t) * k[2] + offsets[1] + h * size;
            double sum = 0;
            for (std::int64_t c = 0; c < size; ++c) {
              sum += static_cast<double>(static_cast<float>(query[c])) * static_cast<float>(key[c]);
            }
            float& score = row[static_cast<std::size_t>(t)];
            score = scale * static_cast<float>(sum);
            if (mask != nullptr) {
              score += static_cast<float>(
                  mask[b * mask_strides[0] + h * mask_strides[1] + s * mask_strides[2] + t * mask_strides[3]]);
            }
            most = std::max(most, score);
          }
          double total = 0;
          for (float& score : row) {
            score = std::exp(score - most);
            total += score;
          }
          T* out = run.outputs[0].out<T>() + (b * q[1] + s) * heads * size + h * size;
          for (std::int64_t c = 0; c < size; ++c) {
            double sum = 0;
            for (std::int64_t t = 0; t < k[1]; ++t) {
              const T* value = run.inputs[2].as<T>() + (b * k[1] + t) * v[2] + offsets[2] + h * size;
              sum += static_cast<double>(row[static_cast<std::size_t>(t)]) * static_cast<float>(value[c]);
            }
            out[c] = static_cast<T>(static_cast<float>(sum / total));
          }
        }
      }
    }
  });
}

Result<std::unique_ptr<Kernel>> kernel(KernelContext& context) {
  return dispatch_floats(context.input(0).dtype,
                         [&](auto tag) { return typed<typename decltype(tag)::type>(context); });
}

}  // namespace

void register_fused_attention(Registry& registry) {
  registry.add({.op = "FusedAttention",
                .inputs = "Q:T, K:T, V:T, mask:T?",
                .outputs = "Y:T",
                .attributes = "heads:int!, head_size:int!, offsets:ints, scale:float",
                .types = {{"T", kFloats}},
                .infer = infer,
                .kernel = kernel,
                .check = check,
                .domain = kOwnDomain});
}

}  // namespace sluice::engine
