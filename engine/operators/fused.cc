// The nodes that passes make of several, in the domain that no file can name; opset: that of the node they come from.
//
// FusedConv        activation(Conv(X, W, B) + R); R has the result's shape. Attributes: Conv's, and the activation's.
// FusedMatMul      activation(scale * A x B + bias + R), A and B with at least two dimensions, batches broadcast as in
//                  MatMul, transA and transB on the last two; bias [N], R the result's shape. Gemm becomes it, too.
// FusedActivation  activation(X)
// FusedElementwise any chain of elementwise steps (elementwise_steps.h) over inputs that broadcast.
// FusedAttention   softmax(scale * Q K^T + mask) V for each head. Q [B, S, *], K [B, T, *], V [B, T, *]: rows of which
//                  head h takes `head_size` columns from offsets[i] + h * head_size on, so that Q, K and V may be the
//                  parts of one tensor. mask broadcasts to [B, heads, S, T]. Result [B, S, heads * head_size].
//
// "activation", "activation_alpha", "activation_beta": activation.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "operators/activation.h"
#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/elementwise_steps.h"
#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

constexpr const char* kConvAttributes =
    "auto_pad:string, dilations:ints, group:int, kernel_shape:ints, pads:ints, strides:ints, activation:string, "
    "activation_alpha:float, activation_beta:float";

// ---- FusedConv ----

Node conv_of(const Node& node) {
  Node conv = node;
  conv.domain = "";
  conv.op = "Conv";
  std::erase_if(conv.attributes, [](const Attribute& attribute) { return attribute.name.starts_with("activation"); });
  conv.inputs.resize(std::min<std::size_t>(conv.inputs.size(), 3));
  conv.schema = Registry::get().find("", "Conv", node.opset);
  return conv;
}

Status infer_conv(ShapeContext& context) {
  const Node conv = conv_of(context.node());
  ShapeContext inner = context.with_node(conv);
  if (Status status = conv.schema->definition.infer(inner); !status.ok()) {
    return status;
  }
  if (context.has_input(3) && context.dims(3) != context.output_dims(0)) {
    return context.error(Code::kInvalidArgument, "the residual is %s where the result is %s",
                         to_string(context.dims(3)).c_str(), to_string(context.output_dims(0)).c_str());
  }
  return {};
}

// Runs Conv's own kernel, then the rest on its result.
class FusedConvKernel final : public Kernel {
 public:
  explicit FusedConvKernel(const Node& node) : conv_(conv_of(node)), activation_(activation_of(node)) {}

  Status prepare(const KernelContext& context) {
    KernelContext inner = context.with_node(conv_);
    auto kernel = conv_.schema->definition.kernel(inner);
    if (kernel.ok()) {
      kernel_ = std::move(*kernel);
    }
    return kernel.status();
  }
  std::size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }

  Status run(const KernelRun& run) override {
    const std::size_t inputs = std::min<std::size_t>(run.inputs.size(), 3);
    if (Status status = kernel_->run({run.inputs.first(inputs), run.outputs, run.scratch}); !status.ok()) {
      return status;
    }
    const TensorRef& out = run.outputs[0];
    std::int64_t count = 1;
    for (std::int32_t d = 0; d < out.rank; ++d) {
      count *= out.dims[d];
    }
    const bool residual = run.inputs.size() > 3 && run.inputs[3].present();
    dispatch_floats(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* y = out.out<T>();
      const T* r = residual ? run.inputs[3].as<T>() : nullptr;
      for (std::int64_t i = 0; i < count; ++i) {
        const float sum = static_cast<float>(y[i]) + (residual ? static_cast<float>(r[i]) : 0.0f);
        y[i] = static_cast<T>(activate(activation_, sum));
      }
    });
    return {};
  }

 private:
  const Node conv_;
  const Activation activation_;
  std::unique_ptr<Kernel> kernel_;
};

Result<std::unique_ptr<Kernel>> conv_kernel(KernelContext& context) {
  auto kernel = std::make_unique<FusedConvKernel>(context.node());
  if (Status status = kernel->prepare(context); !status.ok()) {
    return status;
  }
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));
}

// ---- FusedMatMul ----

struct MatMulShape {
  std::int64_t m = 0, n = 0, k = 0;
  Dims batch, batch_a, batch_b;
};

Result<MatMulShape> matmul_shape(ShapeContext& context) {
  const Node& node = context.node();
  const Dims &a = context.dims(0), &b = context.dims(1);
  if (a.size() < 2 || b.size() < 2) {
    return context.error(Code::kInvalidArgument, "%s and %s must have two dimensions at least", to_string(a).c_str(),
                         to_string(b).c_str());
  }
  const bool trans_a = node.get_int("transA", 0) != 0, trans_b = node.get_int("transB", 0) != 0;
  MatMulShape shape;
  shape.m = a[a.size() - (trans_a ? 1 : 2)];
  shape.k = a[a.size() - (trans_a ? 2 : 1)];
  shape.n = b[b.size() - (trans_b ? 2 : 1)];
  if (b[b.size() - (trans_b ? 1 : 2)] != shape.k) {
    return context.error(Code::kInvalidArgument, "%s and %s do not multiply", to_string(a).c_str(),
                         to_string(b).c_str());
  }
  shape.batch_a.assign(a.begin(), a.end() - 2);
  shape.batch_b.assign(b.begin(), b.end() - 2);
  auto batch = broadcast_dims(context, shape.batch_a, shape.batch_b);
  if (!batch.ok()) {
    return batch.status();
  }
  shape.batch = std::move(*batch);
  return shape;
}

Status infer_matmul(ShapeContext& context) {
  auto shape = matmul_shape(context);
  if (!shape.ok()) {
    return shape.status();
  }
  Dims out = shape->batch;
  out.push_back(shape->m);
  out.push_back(shape->n);
  if ((context.has_input(2) && context.dims(2) != Dims{shape->n}) || (context.has_input(3) && context.dims(3) != out)) {
    return context.error(Code::kInvalidArgument, "the bias or the residual does not fit %s", to_string(out).c_str());
  }
  return context.set(0, std::move(out));
}

template <class T>
Result<std::unique_ptr<Kernel>> typed_matmul(const KernelContext& context) {
  const Node& node = context.node();
  const Dims &a = context.input(0).dims, &b = context.input(1).dims, &out = context.output(0).dims;
  const bool trans_a = node.get_int("transA", 0) != 0, trans_b = node.get_int("transB", 0) != 0;
  const std::int64_t m = out[out.size() - 2], n = out.back(), k = a[a.size() - (trans_a ? 2 : 1)];
  const Dims batch(out.begin(), out.end() - 2);
  const BroadcastWalk<2> walk(batch, {Dims(a.begin(), a.end() - 2), Dims(b.begin(), b.end() - 2)});
  const float scale = node.get_float("scale", 1);
  return make_kernel([=, activation = activation_of(node)](const KernelRun& run) {
    const T* bias = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<T>() : nullptr;
    const T* residual = run.inputs.size() > 3 && run.inputs[3].present() ? run.inputs[3].as<T>() : nullptr;
    walk.for_each_row([&](std::int64_t first, const auto& offsets, std::int64_t length, const auto& steps) {
      for (std::int64_t item = 0; item < length; ++item) {
        const T* x = run.inputs[0].as<T>() + (offsets[0] + item * steps[0]) * m * k;
        const T* w = run.inputs[1].as<T>() + (offsets[1] + item * steps[1]) * k * n;
        const std::int64_t at = (first + item) * m * n;
        T* y = run.outputs[0].out<T>() + at;
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t l = 0; l < k; ++l) {
              sum += static_cast<double>(static_cast<float>(x[trans_a ? l * m + i : i * k + l])) *
                     static_cast<double>(static_cast<float>(w[trans_b ? j * k + l : l * n + j]));
            }
            float value = scale * static_cast<float>(sum);
            value += bias == nullptr ? 0.0f : static_cast<float>(bias[j]);
            value += residual == nullptr ? 0.0f : static_cast<float>(residual[at + i * n + j]);
            y[i * n + j] = static_cast<T>(activate(activation, value));
          }
        }
      }
    });
  });
}

Result<std::unique_ptr<Kernel>> matmul_kernel(KernelContext& context) {
  return dispatch_floats(context.input(0).dtype,
                         [&](auto tag) { return typed_matmul<typename decltype(tag)::type>(context); });
}

// ---- FusedActivation ----

Status infer_same(ShapeContext& context) { return context.set(0, context.dims(0)); }

Result<std::unique_ptr<Kernel>> activation_kernel(KernelContext& context) {
  const std::int64_t count = element_count(context.output(0).dims);
  return dispatch_floats(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return make_kernel([count, activation = activation_of(context.node())](const KernelRun& run) {
      const T* x = run.inputs[0].as<T>();
      T* y = run.outputs[0].out<T>();
      for (std::int64_t i = 0; i < count; ++i) {
        y[i] = static_cast<T>(activate(activation, static_cast<float>(x[i])));
      }
    });
  });
}

// ---- FusedElementwise ----

std::vector<std::string> step_texts(const Node& node) {
  const Attribute* attribute = node.find("steps");
  const auto* texts = attribute == nullptr ? nullptr : std::get_if<std::vector<std::string>>(&attribute->value);
  return texts == nullptr ? std::vector<std::string>{} : *texts;
}

Status check_steps(const Node& node) {
  auto steps = parse_steps(step_texts(node), node.inputs.size());
  return steps.ok() ? Status{}
                    : Status::error(Code::kInvalidArgument, "%s: %s", describe(node).c_str(), steps.status().message());
}

template <class T>
Result<std::unique_ptr<Kernel>> typed_elementwise(const KernelContext& context) {
  const std::size_t inputs = context.input_count();
  auto steps = parse_steps(step_texts(context.node()), inputs);
  if (!steps.ok()) {
    return steps.status();
  }
  const Dims out = context.output(0).dims;
  std::vector<Dims> strides;  // of each input along the result's dimensions
  for (std::size_t i = 0; i < inputs; ++i) {
    const Dims& dims = context.input(i).dims;
    const Dims own = strides_of(dims);
    Dims along(out.size(), 0);
    for (std::size_t d = 0; d < dims.size(); ++d) {
      along[out.size() - dims.size() + d] = dims[d] == 1 ? 0 : own[d];
    }
    strides.push_back(std::move(along));
  }
  return make_kernel([=, steps = std::move(*steps)](const KernelRun& run) {
    const std::int64_t count = element_count(out);
    for (std::int64_t e = 0; e < count; ++e) {
      float results[kMostSteps];
      const auto value = [&](const StepOperand& operand) {
        if (operand.kind == StepOperand::Kind::kNumber) {
          return operand.number;
        }
        if (operand.kind == StepOperand::Kind::kStep) {
          return results[operand.index];
        }
        std::int64_t at = 0, rest = e;
        for (std::size_t d = out.size(); d-- > 0; rest /= out[d]) {
          at += rest % out[d] * strides[operand.index][d];
        }
        return static_cast<float>(run.inputs[operand.index].as<T>()[at]);
      };
      for (std::size_t s = 0; s < steps.size(); ++s) {
        results[s] = compute_step(steps[s], value(steps[s].a), steps[s].binary() ? value(steps[s].b) : 0.0f);
      }
      run.outputs[0].out<T>()[e] = static_cast<T>(results[steps.size() - 1]);
    }
  });
}

Result<std::unique_ptr<Kernel>> elementwise_kernel(KernelContext& context) {
  return dispatch_floats(context.input(0).dtype,
                         [&](auto tag) { return typed_elementwise<typename decltype(tag)::type>(context); });
}

}  // namespace

void register_fused(Registry& registry) {
  registry.add({.op = "FusedConv",
                .inputs = "X:T, W:T, B:T?, R:T?",
                .outputs = "Y:T",
                .attributes = kConvAttributes,
                .types = {{"T", kFloats}},
                .infer = infer_conv,
                .kernel = conv_kernel,
                .check = check_activation,
                .domain = kOwnDomain});
  registry.add({.op = "FusedMatMul",
                .inputs = "A:T, B:T, bias:T?, R:T?",
                .outputs = "Y:T",
                .attributes = "transA:int, transB:int, scale:float, activation:string, activation_alpha:float, "
                              "activation_beta:float",
                .types = {{"T", kFloats}},
                .infer = infer_matmul,
                .kernel = matmul_kernel,
                .check = check_activation,
                .domain = kOwnDomain});
  registry.add({.op = "FusedActivation",
                .inputs = "X:T",
                .outputs = "Y:T",
                .attributes = "activation:string!, activation_alpha:float, activation_beta:float",
                .types = {{"T", kFloats}},
                .infer = infer_same,
                .kernel = activation_kernel,
                .check = check_activation,
                .domain = kOwnDomain});
  registry.add({.op = "FusedElementwise",
                .inputs = "X:T*",
                .outputs = "Y:T",
                .attributes = "steps:strings!",
                .types = {{"T", kFloats}},
                .infer = infer_broadcast,
                .kernel = elementwise_kernel,
                .check = check_steps,
                .domain = kOwnDomain});
}

}  // namespace sluice::engine
