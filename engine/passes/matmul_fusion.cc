// MatMul and Gemm with the scale, bias, residual and activation around them, as one node.
#include <algorithm>

#include "passes/node_activation.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

struct Product {
  std::vector<int> nodes;
  ValueId a = kNoValue, b = kNoValue, bias = kNoValue, residual = kNoValue, result = kNoValue;
  bool trans_a = false, trans_b = false;
  double scale = 1;
};

// A bias of one dimension from a value that broadcasts along the last one: itself, or a constant's bytes with other
// dims. kNoValue if it is no such value.
ValueId as_bias(Graph& graph, ValueId id, std::int64_t columns) {
  const Dims& dims = graph.value(id).type.dims;
  if (dims == Dims{columns}) {
    return id;
  }
  const bool row = !dims.empty() && dims.back() == columns && element_count(dims) == columns;
  return row && graph.is_constant(id)
             ? graph.add_constant(graph.value(id).name, graph.value(id).constant->with_dims({columns}))
             : kNoValue;
}

// Takes a hidden product or quotient with a constant out of an input.
void take_scale(const Rewriter& rewriter, ValueId& id, Product& product) {
  const int index = rewriter.producer(id);
  if (index == Rewriter::kNone || rewriter.sole_user(id) == Rewriter::kNone) {
    return;
  }
  const Node& node = rewriter.node(index);
  const auto operand = is_op(node, "Mul") || is_op(node, "Div") ? scalar_operand(rewriter.graph(), node) : std::nullopt;
  if (operand && operand->scalar != 0 && rewriter.dims(operand->other) == rewriter.dims(id)) {
    product.scale *= is_op(node, "Div") ? 1 / operand->scalar : operand->scalar;
    product.nodes.push_back(index);
    id = operand->other;
  }
}

bool match_gemm(Rewriter& rewriter, const Node& node, Product& product) {
  Graph& graph = rewriter.graph();
  product.trans_a = node.get_int("transA", 0) != 0;
  product.trans_b = node.get_int("transB", 0) != 0;
  product.scale = node.get_float("alpha", 1);
  const float beta = node.get_float("beta", 1);
  if (!node.has_input(2) || beta == 0) {
    return true;
  }
  const Dims& out = rewriter.dims(node.outputs[0]);
  if (beta != 1) {
    return false;
  }
  product.bias = as_bias(graph, node.inputs[2], out[1]);
  if (product.bias == kNoValue && rewriter.dims(node.inputs[2]) == out) {
    product.residual = node.inputs[2];
  }
  return product.bias != kNoValue || product.residual != kNoValue;
}

void take_following(Rewriter& rewriter, Product& product, Node& made) {
  const auto advance = [&](int index) {
    product.nodes.push_back(index);
    product.result = rewriter.node(index).outputs[0];
  };
  const std::int64_t columns = rewriter.dims(product.result).back();
  if (product.bias == kNoValue && product.residual == kNoValue) {
    const int user = rewriter.sole_user(product.result);
    const bool scales =
        user != Rewriter::kNone && (is_op(rewriter.node(user), "Mul") || is_op(rewriter.node(user), "Div"));
    const auto operand = scales ? scalar_operand(rewriter.graph(), rewriter.node(user)) : std::nullopt;
    if (operand && operand->other == product.result && operand->scalar != 0 &&
        rewriter.dims(rewriter.node(user).outputs[0]) == rewriter.dims(product.result)) {
      product.scale *= is_op(rewriter.node(user), "Div") ? 1 / operand->scalar : operand->scalar;
      advance(user);
    }
  }
  for (int round = 0; round < 2; ++round) {  // the bias, the residual
    const FollowingSum sum = following_sum(rewriter, product.result);
    if (sum.node == Rewriter::kNone ||
        rewriter.dims(rewriter.node(sum.node).outputs[0]) != rewriter.dims(product.result)) {
      break;
    }
    const bool full = rewriter.dims(sum.other) == rewriter.dims(product.result);
    const ValueId bias = product.bias == kNoValue && !full ? as_bias(rewriter.graph(), sum.other, columns) : kNoValue;
    if (bias != kNoValue) {
      product.bias = bias;
    } else if (full && product.residual == kNoValue) {
      product.residual = sum.other;
    } else {
      break;
    }
    advance(sum.node);
  }
  if (const FollowingActivation following = following_activation(rewriter, product.result);
      following.node != Rewriter::kNone) {
    set_activation(made, following.activation);
    advance(following.node);
  }
}

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    const bool gemm = is_op(rewriter.node(i), "Gemm");
    if (!gemm && !is_op(rewriter.node(i), "MatMul")) {
      continue;
    }
    const Node node = rewriter.node(i);
    const DType dtype = graph.value(node.outputs[0]).type.dtype;
    if (rewriter.dims(node.inputs[0]).size() < 2 || rewriter.dims(node.inputs[1]).size() < 2 ||
        (dtype != DType::kFloat && dtype != DType::kFloat16)) {
      continue;
    }
    Product product{{i}, node.inputs[0], node.inputs[1], kNoValue, kNoValue, node.outputs[0], false, false, 1};
    if (gemm && !match_gemm(rewriter, node, product)) {
      continue;
    }
    take_scale(rewriter, product.a, product);
    take_scale(rewriter, product.b, product);
    Node made = own_node("FusedMatMul", node.opset, {product.a, product.b}, kNoValue);
    take_following(rewriter, product, made);
    made.name = node.name;
    made.outputs = {product.result};
    made.inputs.resize(product.residual != kNoValue ? 4 : product.bias != kNoValue ? 3 : 2, kNoValue);
    if (product.bias != kNoValue) {
      made.inputs[2] = product.bias;
    }
    if (product.residual != kNoValue) {
      made.inputs[3] = product.residual;
    }
    made.set("transA", std::int64_t{product.trans_a});
    made.set("transB", std::int64_t{product.trans_b});
    made.set("scale", static_cast<float>(product.scale));
    if (Status status = rewriter.fuse(std::move(product.nodes), std::move(made)); !status.ok()) {
      return status;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_matmul_fusion() {
  return {"matmul_fusion", "MatMul and Gemm with scale, bias, residual and activation as one node",
          Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
