// HardSwish as exporters write it becomes one node: the operator itself, x * HardSigmoid(x), and x * Clip(x + 3, 0, 6)
// / 6 with the division anywhere.
#include <algorithm>
#include <cmath>

#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

constexpr std::size_t kMostNodes = 8;  // exporters write five

struct Match {
  ValueId x = kNoValue;
  float alpha = 1.0f / 6;
  float beta = 0.5f;
  std::vector<int> nodes;
};

// Clip's bounds: attributes to opset 10, inputs from 11.
bool clips(const Graph& graph, const Node& node, double low, double high) {
  if (node.opset < 11) {
    return node.get_float("min", -INFINITY) == static_cast<float>(low) &&
           node.get_float("max", INFINITY) == static_cast<float>(high);
  }
  return node.has_input(1) && node.has_input(2) && scalar_of(graph, node.inputs[1]) == low &&
         scalar_of(graph, node.inputs[2]) == high;
}

// The factor that a node multiplies its variable input by, if that is a constant.
std::optional<ScalarOperand> factor_of(const Graph& graph, const Node& node) {
  auto operand = is_op(node, "Mul") || is_op(node, "Div") ? scalar_operand(graph, node) : std::nullopt;
  if (operand && is_op(node, "Div")) {
    if (operand->scalar == 0) {
      return std::nullopt;
    }
    operand->scalar = 1 / operand->scalar;
  }
  return operand;
}

// Adds what computes `id` to a product of x, Clip(x + 3, 0, 6) and constants.
struct Product {
  const Rewriter& rewriter;
  Match match;
  double factor = 1;
  ValueId x = kNoValue;        // the plain one
  ValueId clipped = kNoValue;  // what Clip is of, less the 3

  bool take(ValueId id) {
    const Graph& graph = rewriter.graph();
    if (const int clip = rewriter.hidden_producer(id, "Clip");
        clip != Rewriter::kNone && clipped == kNoValue && clips(graph, rewriter.node(clip), 0, 6)) {
      const int add = rewriter.hidden_producer(rewriter.node(clip).inputs[0], "Add");
      const auto operand = add == Rewriter::kNone ? std::nullopt : scalar_operand(graph, rewriter.node(add));
      if (operand && operand->scalar == 3) {
        match.nodes.insert(match.nodes.end(), {clip, add});
        clipped = operand->other;
        return true;
      }
      return false;
    }
    const int scaled = id == kNoValue ? Rewriter::kNone : rewriter.producer(id);
    if (scaled != Rewriter::kNone && rewriter.sole_user(id) != Rewriter::kNone && match.nodes.size() < kMostNodes) {
      if (const auto operand = factor_of(graph, rewriter.node(scaled))) {
        factor *= operand->scalar;
        match.nodes.push_back(scaled);
        return take(operand->other);
      }
    }
    if (x != kNoValue) {
      return false;
    }
    x = id;
    return true;
  }
};

std::optional<Match> match_hard_sigmoid(const Rewriter& rewriter, int product) {
  const Node& node = rewriter.node(product);
  for (const std::size_t side : {0u, 1u}) {
    const int gate = rewriter.hidden_producer(node.inputs[side], "HardSigmoid");
    if (gate != Rewriter::kNone && rewriter.node(gate).inputs[0] == node.inputs[1 - side]) {
      return Match{node.inputs[1 - side],
                   rewriter.node(gate).get_float("alpha", 0.2f),
                   rewriter.node(gate).get_float("beta", 0.5f),
                   {gate, product}};
    }
  }
  return std::nullopt;
}

// From the product of x and the clipped one; a division after it is taken in by extend().
std::optional<Match> match_clip(const Rewriter& rewriter, int index) {
  const Node& node = rewriter.node(index);
  Product product{rewriter, {}, 1, kNoValue, kNoValue};
  product.match.nodes = {index};
  if (!product.take(node.inputs[0]) || !product.take(node.inputs[1]) || product.x == kNoValue ||
      product.x != product.clipped) {
    return std::nullopt;
  }
  int last = index;
  if (std::abs(product.factor - 1) < 1e-6) {
    last = rewriter.sole_user(node.outputs[0]);
    const auto operand = last == Rewriter::kNone ? std::nullopt : factor_of(rewriter.graph(), rewriter.node(last));
    if (!operand || operand->other != node.outputs[0]) {
      return std::nullopt;
    }
    product.factor = operand->scalar;
    product.match.nodes.push_back(last);
  }
  if (std::abs(product.factor * 6 - 1) > 1e-5) {
    return std::nullopt;
  }
  product.match.x = product.x;
  return product.match;
}

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    const Node& node = rewriter.node(i);
    std::optional<Match> match;
    if (is_op(node, "HardSwish")) {
      match = Match{node.inputs[0], 1.0f / 6, 0.5f, {i}};
    } else if (is_op(node, "Mul") && node.inputs.size() == 2) {
      match = match_hard_sigmoid(rewriter, i);
      match = match ? match : match_clip(rewriter, i);
    }
    if (!match) {
      continue;
    }
    const Node& last = rewriter.node(*std::max_element(match->nodes.begin(), match->nodes.end()));
    if (rewriter.dims(match->x) != rewriter.dims(last.outputs[0])) {
      continue;
    }
    Node made = own_node("FusedActivation", node.opset, {match->x}, last.outputs[0]);
    made.set("activation", std::string("hard_swish"));
    made.set("activation_alpha", match->alpha);
    made.set("activation_beta", match->beta);
    if (Status status = rewriter.fuse(match->nodes, std::move(made)); !status.ok()) {
      return status;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_hard_swish() {
  return {"hard_swish", "HardSwish and the forms that exporters write for it as one node", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
