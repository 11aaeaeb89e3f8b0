// ConvInteger, MatMulInteger, QLinearConv and QLinearMatMul: products of 8-bit integers.
#include "operators/convolve.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/matmul_shape.h"
#include "operators/multiply.h"
#include "operators/registry.h"
#include "operators/saturate.h"

namespace sluice::engine {
namespace {

// Where the operands and what describes them stand among the inputs; kNone where there is no such input.
struct Roles {
  std::size_t a = 0, b = 1, a_zero = 2, b_zero = 3;
  std::size_t a_scale = kNone, b_scale = kNone, y_scale = kNone, y_zero = kNone, bias = kNone;
  static constexpr std::size_t kNone = 100;
};
constexpr Roles kInteger;
constexpr Roles kLinear = {
    .a = 0, .b = 3, .a_zero = 2, .b_zero = 5, .a_scale = 1, .b_scale = 4, .y_scale = 6, .y_zero = 7, .bias = 8};

// Sums wrap as the 32-bit integers of the result do.
using Sum = std::uint32_t;

// A number for all, or one for each of `count`. Errors: kUnimplemented.
Status check_vector(const ShapeContext& context, std::size_t input, std::int64_t count) {
  if (!context.has_input(input)) {
    return {};
  }
  const Dims& dims = context.dims(input);
  if (dims.empty() || dims == Dims{1} || (count > 1 && dims == Dims{count})) {
    return {};
  }
  return refuse(context.node(), "a scale or zero point of shape " + to_string(dims),
                "export the model with one number, or one for each row of A, column of B or filter");
}

// `rows`, `columns`: of the result, for numbers that may differ along them; 1 where they may not.
Status check_roles(const ShapeContext& context, const Roles& roles, std::int64_t rows, std::int64_t columns) {
  for (const std::size_t input : {roles.a_zero, roles.a_scale}) {
    if (Status status = check_vector(context, input, rows); !status.ok()) {
      return status;
    }
  }
  for (const std::size_t input : {roles.b_zero, roles.b_scale}) {
    if (Status status = check_vector(context, input, columns); !status.ok()) {
      return status;
    }
  }
  for (const std::size_t input : {roles.y_zero, roles.y_scale}) {
    if (Status status = check_vector(context, input, 1); !status.ok()) {
      return status;
    }
  }
  return {};
}

// One input that is a number or a vector; nothing reads as zeros.
template <class T>
class Vector {
 public:
  Vector(const KernelRun& run, std::size_t input) {
    if (input < run.inputs.size() && run.inputs[input].present()) {
      data_ = run.inputs[input].as<T>();
      step_ = run.inputs[input].rank == 1 && run.inputs[input].dims[0] > 1 ? 1 : 0;
    }
  }
  T operator[](std::int64_t i) const { return data_ == nullptr ? T{} : data_[i * step_]; }

 private:
  const T* data_ = nullptr;
  std::int64_t step_ = 0;
};

// Writes rows of sums as they are, or scaled to the result's 8-bit type.
class Output {
 public:
  Output(const KernelRun& run, const Roles& roles)
      : y_(run.outputs[0]), a_scale_(run, roles.a_scale), b_scale_(run, roles.b_scale), bias_(run, roles.bias) {
    if (y_.dtype != DType::kInt32) {
      y_scale_ = run.inputs[roles.y_scale].as<float>()[0];
      zero_ = y_.dtype == DType::kInt8 ? int{run.inputs[roles.y_zero].as<std::int8_t>()[0]}
                                       : int{run.inputs[roles.y_zero].as<std::uint8_t>()[0]};
    }
  }

  // `i`: row of A; element j is in column first + j * step of B.
  void write(std::int64_t offset, const Sum* row, std::int64_t count, std::int64_t i, std::int64_t first,
             std::int64_t step) const {
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t column = first + j * step;
      const auto sum = static_cast<std::int32_t>(row[j] + static_cast<Sum>(bias_[column]));
      if (y_.dtype == DType::kInt32) {
        y_.out<std::int32_t>()[offset + j] = sum;
        continue;
      }
      const float value = static_cast<float>(sum) * (a_scale_[i] * b_scale_[column] / y_scale_);
      if (y_.dtype == DType::kInt8) {
        y_.out<std::int8_t>()[offset + j] = saturate<std::int8_t>(value, zero_);
      } else {
        y_.out<std::uint8_t>()[offset + j] = saturate<std::uint8_t>(value, zero_);
      }
    }
  }

 private:
  const TensorRef& y_;
  Vector<float> a_scale_, b_scale_;
  Vector<std::int32_t> bias_;
  float y_scale_ = 1;
  std::int32_t zero_ = 0;
};

template <class T>
Sum shifted(T value, T zero) {
  return static_cast<Sum>(std::int32_t{value} - std::int32_t{zero});
}

// Calls f(TypeTag<A>, TypeTag<B>).
template <class F>
auto dispatch_bytes(DType a, DType b, F f) {
  using S = TypeTag<std::int8_t>;
  using U = TypeTag<std::uint8_t>;
  if (a == DType::kInt8) {
    return b == DType::kInt8 ? f(S{}, S{}) : f(S{}, U{});
  }
  return b == DType::kInt8 ? f(U{}, S{}) : f(U{}, U{});
}

// ---- convolutions ----

template <const Roles& roles>
Status infer_conv(ShapeContext& context) {
  auto shape = conv_shape(context.node(), context.dims(roles.a), context.dims(roles.b));
  if (!shape.ok()) {
    return shape.status();
  }
  const std::int64_t filters = context.dims(roles.b)[0];
  if (Status status = check_roles(context, roles, 1, filters); !status.ok()) {
    return status;
  }
  if (context.has_input(roles.bias) && context.dims(roles.bias) != Dims{filters}) {
    return context.error(Code::kInvalidArgument, "a bias of shape %s for %lld filters",
                         to_string(context.dims(roles.bias)).c_str(), static_cast<long long>(filters));
  }
  Dims dims = {context.dims(roles.a)[0], filters};
  dims.insert(dims.end(), shape->window.out.begin(), shape->window.out.end());
  return context.set(0, std::move(dims));
}

template <const Roles& roles>
Result<std::unique_ptr<Kernel>> conv_kernel(KernelContext& context) {
  auto shape = conv_shape(context.node(), context.input(roles.a).dims, context.input(roles.b).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return dispatch_bytes(context.input(roles.a).dtype, context.input(roles.b).dtype, [&](auto a_tag, auto b_tag) {
    using X = typename decltype(a_tag)::type;
    using W = typename decltype(b_tag)::type;
    const auto scratch = static_cast<std::size_t>(shape->row()) * sizeof(Sum);
    return make_kernel(
        [s = std::move(*shape), which = roles](const KernelRun& run) {
          const Output output(run, which);
          const X x_zero = Vector<X>(run, which.a_zero)[0];
          const Vector<W> w_zero(run, which.b_zero);
          convolve(
              s, run.inputs[which.a].as<X>(), run.inputs[which.b].as<W>(), reinterpret_cast<Sum*>(run.scratch),
              [&](X value) { return shifted(value, x_zero); },
              [&](W value, std::int64_t m) { return shifted(value, w_zero[m]); },
              [&](std::int64_t m, std::int64_t offset, const Sum* row) {
                output.write(offset, row, s.row(), 0, m, 0);
              });
        },
        scratch);
  });
}

// ---- matrices ----

template <const Roles& roles>
Status infer_matmul(ShapeContext& context) {
  auto shape = matmul_shape(context.node(), context.dims(roles.a), context.dims(roles.b));
  if (!shape.ok()) {
    return shape.status();
  }
  if (Status status = check_roles(context, roles, shape->m, shape->n); !status.ok()) {
    return status;
  }
  return context.set(0, std::move(shape->out));
}

template <const Roles& roles>
Result<std::unique_ptr<Kernel>> matmul_kernel(KernelContext& context) {
  auto shape = matmul_shape(context.node(), context.input(roles.a).dims, context.input(roles.b).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return dispatch_bytes(context.input(roles.a).dtype, context.input(roles.b).dtype, [&](auto a_tag, auto b_tag) {
    using A = typename decltype(a_tag)::type;
    using B = typename decltype(b_tag)::type;
    const auto scratch = static_cast<std::size_t>(shape->n) * sizeof(Sum);
    return make_kernel(
        [s = std::move(*shape), which = roles](const KernelRun& run) {
          const Output output(run, which);
          const Vector<A> a_zero(run, which.a_zero);
          const Vector<B> b_zero(run, which.b_zero);
          auto* row = reinterpret_cast<Sum*>(run.scratch);
          std::int64_t offset = 0;
          s.for_each([&](std::int64_t a_index, std::int64_t b_index) {
            const A* a = run.inputs[which.a].as<A>() + a_index * s.m * s.k;
            const B* b = run.inputs[which.b].as<B>() + b_index * s.k * s.n;
            for (std::int64_t i = 0; i < s.m; ++i, offset += s.n) {
              multiply_row(
                  a + i * s.k, 1, b, {s.n, 1}, s.n, s.k, row, [&](A value) { return shifted(value, a_zero[i]); },
                  [&](B value, std::int64_t j) { return shifted(value, b_zero[j]); });
              output.write(offset, row, s.n, i, 0, 1);
            }
          });
        },
        scratch);
  });
}

}  // namespace

void register_quantized_products(Registry& registry) {
  const TypeSet bytes = types_of({DType::kInt8, DType::kUint8});
  const std::vector<TypeRule> types = {
      {"A", bytes}, {"B", bytes}, {"Y", bytes}, {"S", kFloat32}, {"I", types_of({DType::kInt32})}};
  const char* const conv = "auto_pad:string, dilations:ints, group:int, kernel_shape:ints, pads:ints, strides:ints";
  registry.add({.op = "ConvInteger",
                .first = 10,
                .inputs = "x:A, w:B, x_zero_point:A?, w_zero_point:B?",
                .outputs = "y:I",
                .attributes = conv,
                .types = types,
                .infer = infer_conv<kInteger>,
                .kernel = conv_kernel<kInteger>});
  registry.add(
      {.op = "QLinearConv",
       .first = 10,
       .inputs = "x:A, x_scale:S, x_zero_point:A, w:B, w_scale:S, w_zero_point:B, y_scale:S, y_zero_point:Y, B:I?",
       .outputs = "y:Y",
       .attributes = conv,
       .types = types,
       .infer = infer_conv<kLinear>,
       .kernel = conv_kernel<kLinear>});
  registry.add({.op = "MatMulInteger",
                .first = 10,
                .inputs = "A:A, B:B, a_zero_point:A?, b_zero_point:B?",
                .outputs = "Y:I",
                .types = types,
                .infer = infer_matmul<kInteger>,
                .kernel = matmul_kernel<kInteger>});
  registry.add({.op = "QLinearMatMul",
                .first = 10,
                .inputs = "a:A, a_scale:S, a_zero_point:A, b:B, b_scale:S, b_zero_point:B, y_scale:S, y_zero_point:Y",
                .outputs = "y:Y",
                .types = types,
                .infer = infer_matmul<kLinear>,
                .kernel = matmul_kernel<kLinear>});
}

}  // namespace sluice::engine
