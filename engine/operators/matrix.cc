// MatMul and Gemm.

#include "operators/broadcast.h"
#include "operators/dispatch.h"
#include "operators/lambda_kernel.h"
#include "operators/matmul_shape.h"
#include "operators/multiply.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

constexpr TypeSet kMatrixTypes = kFloats | types_of({DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64});

template <class F>
auto dispatch_matrix(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt32:
      return f(TypeTag<std::int32_t>{});
    case DType::kInt64:
      return f(TypeTag<std::int64_t>{});
    case DType::kUint32:
      return f(TypeTag<std::uint32_t>{});
    case DType::kUint64:
      return f(TypeTag<std::uint64_t>{});
    default:
      return dispatch_floats(dtype, f);
  }
}

// Signed integers wrap: they are multiplied and added as unsigned ones.
template <class T>
using Accumulator =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, TypeTag<ComputeType<T>>>::type;

template <class A>
struct TakeAs {
  template <class T>
  A operator()(T value, std::int64_t = 0) const {
    return static_cast<A>(value);
  }
};

// ---- MatMul ----

Status infer_matmul(ShapeContext& context) {
  auto shape = matmul_shape(context.node(), context.dims(0), context.dims(1));
  return shape.ok() ? context.set(0, std::move(shape->out)) : shape.status();
}

Result<std::unique_ptr<Kernel>> matmul_kernel(KernelContext& context) {
  auto shape = matmul_shape(context.node(), context.input(0).dims, context.input(1).dims);
  if (!shape.ok()) {
    return shape.status();
  }
  return dispatch_matrix(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    const auto scratch = static_cast<std::size_t>(shape->n) * sizeof(A);
    return make_kernel(
        [s = std::move(*shape)](const KernelRun& run) {
          T* y = run.outputs[0].out<T>();
          A* row = reinterpret_cast<A*>(run.scratch);
          s.for_each([&](std::int64_t a_index, std::int64_t b_index) {
            const T* a = run.inputs[0].as<T>() + a_index * s.m * s.k;
            const T* b = run.inputs[1].as<T>() + b_index * s.k * s.n;
            for (std::int64_t i = 0; i < s.m; ++i, y += s.n) {
              multiply_row(a + i * s.k, 1, b, {s.n, 1}, s.n, s.k, row, TakeAs<A>(), TakeAs<A>());
              for (std::int64_t j = 0; j < s.n; ++j) {
                y[j] = static_cast<T>(row[j]);
              }
            }
          });
        },
        scratch);
  });
}

// ---- Gemm ----

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
};

GemmShape gemm_shape(const Node& node, const Dims& a, const Dims& b) {
  const bool turn_a = node.get_int("transA", 0) != 0, turn_b = node.get_int("transB", 0) != 0;
  return {a[turn_a ? 1 : 0], b[turn_b ? 0 : 1], a[turn_a ? 0 : 1]};
}

Status infer_gemm(ShapeContext& context) {
  const Dims &a = context.dims(0), &b = context.dims(1);
  const Node& node = context.node();
  if (a.size() != 2 || b.size() != 2 || gemm_shape(node, a, b).k != b[node.get_int("transB", 0) != 0 ? 1 : 0]) {
    return context.error(Code::kInvalidArgument, "%s and %s do not multiply", to_string(a).c_str(),
                         to_string(b).c_str());
  }
  const GemmShape shape = gemm_shape(node, a, b);
  const Dims out = {shape.m, shape.n};
  if (context.has_input(2)) {
    auto dims = broadcast_dims(context, out, context.dims(2));
    if (!dims.ok()) {
      return dims.status();
    }
    if (*dims != out) {
      return context.error(Code::kInvalidArgument, "C of shape %s does not broadcast to %s",
                           to_string(context.dims(2)).c_str(), to_string(out).c_str());
    }
  }
  if (!is_floating(context.dtype(0)) && (node.get_float("alpha", 1) != 1 || node.get_float("beta", 1) != 1)) {
    return refuse(node, "alpha or beta other than 1 for integers", "export the model with floats");
  }
  return context.set(0, out);
}

Result<std::unique_ptr<Kernel>> gemm_kernel(KernelContext& context) {
  const Node& node = context.node();
  const GemmShape s = gemm_shape(node, context.input(0).dims, context.input(1).dims);
  const MatrixStride a_stride = node.get_int("transA", 0) != 0 ? MatrixStride{1, s.m} : MatrixStride{s.k, 1};
  const MatrixStride b_stride = node.get_int("transB", 0) != 0 ? MatrixStride{1, s.k} : MatrixStride{s.n, 1};
  MatrixStride c_stride;
  if (context.has_input(2)) {
    const Dims& c = context.input(2).dims;
    c_stride.column = !c.empty() && c.back() != 1 ? 1 : 0;
    c_stride.row = c.size() == 2 && c[0] != 1 ? c[1] : 0;
  }
  const float alpha = node.get_float("alpha", 1), beta = node.get_float("beta", 1);
  return dispatch_matrix(context.input(0).dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    return make_kernel(
        [=](const KernelRun& run) {
          const T* a = run.inputs[0].as<T>();
          const T* c = run.inputs.size() > 2 && run.inputs[2].present() ? run.inputs[2].as<T>() : nullptr;
          T* y = run.outputs[0].out<T>();
          A* row = reinterpret_cast<A*>(run.scratch);
          for (std::int64_t i = 0; i < s.m; ++i, y += s.n) {
            multiply_row(a + i * a_stride.row, a_stride.column, run.inputs[1].as<T>(), b_stride, s.n, s.k, row,
                         TakeAs<A>(), TakeAs<A>());
            for (std::int64_t j = 0; j < s.n; ++j) {
              A value = row[j] * static_cast<A>(alpha);
              if (c != nullptr) {
                value += static_cast<A>(beta) * static_cast<A>(c[i * c_stride.row + j * c_stride.column]);
              }
              y[j] = static_cast<T>(value);
            }
          }
        },
        static_cast<std::size_t>(s.n) * sizeof(A));
  });
}

}  // namespace

Result<MatMulShape> matmul_shape(const Node& node, const Dims& a, const Dims& b) {
  const auto wrong = [&] {
    return Status::error(Code::kInvalidArgument, "%s: %s and %s do not multiply", describe(node).c_str(),
                         to_string(a).c_str(), to_string(b).c_str());
  };
  if (a.empty() || b.empty()) {
    return wrong();
  }
  const Dims rows = a.size() == 1 ? Dims{1, a[0]} : a, columns = b.size() == 1 ? Dims{b[0], 1} : b;
  MatMulShape shape;
  shape.m = rows[rows.size() - 2];
  shape.k = rows.back();
  shape.n = columns.back();
  if (columns[columns.size() - 2] != shape.k) {
    return wrong();
  }
  const Dims a_batch(rows.begin(), rows.end() - 2), b_batch(columns.begin(), columns.end() - 2);
  const std::size_t rank = std::max(a_batch.size(), b_batch.size());
  for (std::size_t d = 0; d < rank; ++d) {
    const auto dim = [&](const Dims& dims) { return d + dims.size() < rank ? 1 : dims[d + dims.size() - rank]; };
    const std::int64_t left = dim(a_batch), right = dim(b_batch);
    if (left != right && left != 1 && right != 1) {
      return wrong();
    }
    shape.out.push_back(left == 1 ? right : left);
  }
  shape.batches = BroadcastWalk<2>(shape.out, {a_batch, b_batch});
  if (a.size() > 1) {
    shape.out.push_back(shape.m);
  }
  if (b.size() > 1) {
    shape.out.push_back(shape.n);
  }
  return shape;
}

void register_matrix(Registry& registry) {
  registry.add({.op = "MatMul",
                .inputs = "A:T, B:T",
                .outputs = "Y:T",
                .types = {{"T", kMatrixTypes}},
                .infer = infer_matmul,
                .kernel = matmul_kernel});
  const auto gemm = [&](int first, int last, const char* inputs, const char* attributes) {
    registry.add({.op = "Gemm",
                  .first = first,
                  .last = last,
                  .inputs = inputs,
                  .outputs = "Y:T",
                  .attributes = attributes,
                  .types = {{"T", kMatrixTypes}},
                  .infer = infer_gemm,
                  .kernel = gemm_kernel});
  };
  // Until opset 6, C broadcasts only if `broadcast` says so, but then as it always does since.
  gemm(6, 6, "A:T, B:T, C:T", "alpha:float, beta:float, broadcast:int, transA:int, transB:int");
  gemm(7, 10, "A:T, B:T, C:T", "alpha:float, beta:float, transA:int, transB:int");
  gemm(11, 17, "A:T, B:T, C:T?", "alpha:float, beta:float, transA:int, transB:int");
}

}  // namespace sluice::engine
