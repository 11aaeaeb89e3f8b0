// What the pass `layout` makes for devices that keep eight channels side by side: a tensor [N, C, H, W] becomes
// [N, C / 8, H, W, 8]. Operators that do not care which element is which take such tensors as they are.
//
// - Block, Unblock: from one layout to the other; those named ...View, where H and W are 1, cost nothing.
// - BlockedConv: FusedConv with pads given; X blocked, or with few channels as it is; R and Y blocked; group 1, or as
//   many as channels in and out; winograd 1: by that algorithm.
// - BlockedPool: MaxPool ("max"), AveragePool ("average", padding counted where count_include_pad is 1).
// - BlockedGlobalAverage: [N, C / 8, H, W, 8] to [N, C, 1, 1].
// - BlockedResize: nearest, by whole factors.
#include <cstring>

#include "operators/activation.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

constexpr std::int64_t kBlock = 8;

Status infer_block(ShapeContext& context) {
  const Dims& x = context.dims(0);
  if (x.size() != 4 || x[1] % kBlock != 0) {
    return context.error(Code::kInvalidArgument, "%s has no blocks of 8 channels", to_string(x).c_str());
  }
  return context.set(0, {x[0], x[1] / kBlock, x[2], x[3], kBlock});
}

Status infer_unblock(ShapeContext& context) {
  const Dims& x = context.dims(0);
  if (x.size() != 5 || x[4] != kBlock) {
    return context.error(Code::kInvalidArgument, "%s is not blocked", to_string(x).c_str());
  }
  return context.set(0, {x[0], x[1] * kBlock, x[2], x[3]});
}

// To and fro are transpositions of [blocks of images][8][pixels].
template <bool kToBlocks>
Result<std::unique_ptr<Kernel>> reorder_kernel(KernelContext& context) {
  const Dims blocked = kToBlocks ? context.output(0).dims : context.input(0).dims;
  return make_kernel([=](const KernelRun& run) {
    const float* x = run.inputs[0].as<float>();
    float* y = run.outputs[0].out<float>();
    const std::int64_t pixels = blocked[2] * blocked[3];
    for (std::int64_t b = 0; b < blocked[0] * blocked[1]; ++b, x += pixels * kBlock, y += pixels * kBlock) {
      for (std::int64_t c = 0; c < kBlock; ++c) {
        for (std::int64_t p = 0; p < pixels; ++p) {
          kToBlocks ? y[p * kBlock + c] = x[c * pixels + p] : y[c * pixels + p] = x[p * kBlock + c];
        }
      }
    }
  });
}

Result<std::unique_ptr<Kernel>> copy_kernel(KernelContext& context) {
  const auto bytes = static_cast<std::size_t>(element_count(context.output(0).dims)) * sizeof(float);
  return make_kernel([bytes](const KernelRun& run) {
    if (bytes > 0) {
      std::memcpy(run.outputs[0].data, run.inputs[0].data, bytes);
    }
  });
}

// Windows' results: as many as attribute "output" says, since only who made the node knows how they were rounded.
Status infer_window(ShapeContext& context) {
  const auto output = context.node().get_ints("output");
  return context.set(0, Dims(output.begin(), output.end()));
}

Status infer_average(ShapeContext& context) {
  const Dims& x = context.dims(0);
  return context.set(0, {x[0], x[1] * kBlock, 1, 1});
}

Status infer_resize(ShapeContext& context) {
  Dims y = context.dims(0);
  y[2] *= context.node().get_int("factor_h", 1);
  y[3] *= context.node().get_int("factor_w", 1);
  return context.set(0, std::move(y));
}

}  // namespace

void register_blocked(Registry& registry) {
  const auto add = [&](const char* op, const char* inputs, const char* attributes, InferShapes infer,
                       MakeKernel kernel = nullptr, bool view = false, Status(*check)(const Node&) = nullptr) {
    registry.add({.op = op,
                  .inputs = inputs,
                  .outputs = "Y:T",
                  .attributes = attributes,
                  .types = {{"T", kFloat32}},
                  .infer = infer,
                  .kernel = kernel,
                  .check = check,
                  .view = view,
                  .domain = kOwnDomain});
  };
  add("Block", "X:T", "", infer_block, reorder_kernel<true>);
  add("Unblock", "X:T", "", infer_unblock, reorder_kernel<false>);
  add("BlockView", "X:T", "", infer_block, copy_kernel, true);
  add("UnblockView", "X:T", "", infer_unblock, copy_kernel, true);
  add("BlockedConv", "X:T, W:T, B:T?, R:T?",
      "strides:ints!, pads:ints!, dilations:ints!, group:int, winograd:int, output:ints!, activation:string, "
      "activation_alpha:float, "
      "activation_beta:float",
      infer_window, nullptr, false, check_activation);
  add("BlockedPool", "X:T",
      "kind:string!, kernel:ints!, strides:ints!, pads:ints!, count_include_pad:int, output:ints!", infer_window);
  add("BlockedGlobalAverage", "X:T", "", infer_average);
  add("BlockedResize", "X:T", "factor_h:int!, factor_w:int!", infer_resize);
}

}  // namespace sluice::engine
