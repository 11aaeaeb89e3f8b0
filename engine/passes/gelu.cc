// GELU as exporters write it becomes one node: x * (1 + Erf(x / sqrt(2))) / 2 with its factors in any order, and the
// approximation x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

constexpr double kRootHalf = 1 / std::numbers::sqrt2;
const double kRootTwoOverPi = std::sqrt(2 / std::numbers::pi);
constexpr double kCubic = 0.044715;
constexpr int kDeepest = 4;  // products within products

bool near(double value, double expected) { return std::abs(value - expected) <= 1e-4 * std::abs(expected); }

class Matcher {
 public:
  explicit Matcher(const Rewriter& rewriter) : rewriter_(rewriter) {}

  const std::vector<int>& nodes() const { return nodes_; }
  ValueId x() const { return x_; }
  int last() const { return last_; }

  // From the Erf or Tanh on: its argument, then everything up to the result.
  bool match(int function) {
    nodes_ = {function};
    const Node& node = rewriter_.node(function);
    return (is_op(node, "Erf") ? match_erf(node.inputs[0]) : match_cubic(node.inputs[0])) && match_product(function);
  }

 private:
  // `id` as scalar times something hidden; the something, else `id` itself with the factor 1.
  ScalarOperand scaled(ValueId id) {
    const int index = id == kNoValue ? Rewriter::kNone : rewriter_.producer(id);
    if (index == Rewriter::kNone || rewriter_.sole_user(id) == Rewriter::kNone) {
      return {id, 1};
    }
    const Node& node = rewriter_.node(index);
    const bool division = is_op(node, "Div");
    const auto operand = division || is_op(node, "Mul") ? scalar_operand(rewriter_.graph(), node) : std::nullopt;
    if (!operand || (division && operand->scalar == 0)) {
      return {id, 1};
    }
    nodes_.push_back(index);
    return {operand->other, division ? 1 / operand->scalar : operand->scalar};
  }

  bool match_erf(ValueId argument) {
    const ScalarOperand operand = scaled(argument);
    x_ = operand.other;
    return near(operand.scalar, kRootHalf);
  }

  struct Monomial {
    double factor = 1;
    int power = 0;
  };

  // `id` as factor * x^power, made of hidden products and powers; notes the nodes. Power 0: it is none.
  Monomial monomial(ValueId id, int depth = 0) {
    if (id == x_) {
      return {1, 1};
    }
    const int index = id == kNoValue || depth > kDeepest ? Rewriter::kNone : rewriter_.producer(id);
    if (index == Rewriter::kNone || rewriter_.sole_user(id) == Rewriter::kNone) {
      return {};
    }
    const Node& node = rewriter_.node(index);
    const auto operand = scalar_operand(rewriter_.graph(), node);
    nodes_.push_back(index);
    if (is_op(node, "Pow") && operand && node.inputs[0] == x_ && (operand->scalar == 2 || operand->scalar == 3)) {
      return {1, static_cast<int>(operand->scalar)};
    }
    if (is_op(node, "Mul") && operand) {
      const Monomial inner = monomial(operand->other, depth + 1);
      return {inner.factor * operand->scalar, inner.power};
    }
    if (is_op(node, "Mul")) {
      const Monomial left = monomial(node.inputs[0], depth + 1), right = monomial(node.inputs[1], depth + 1);
      return left.power == 0 || right.power == 0 ? Monomial{}
                                                 : Monomial{left.factor * right.factor, left.power + right.power};
    }
    return {};
  }
  bool is_monomial(ValueId id, double factor, int power) {
    const Monomial found = monomial(id);
    return found.power == power && near(found.factor, factor);
  }

  // sqrt(2/pi) * (x + c x^3), or sqrt(2/pi) * x * (1 + c x^2).
  bool match_cubic(ValueId argument) {
    const ScalarOperand outer = scaled(argument);
    if (near(outer.scalar, kRootTwoOverPi)) {
      const int add = rewriter_.hidden_producer(outer.other, "Add");
      if (add != Rewriter::kNone) {
        return match_sum(add);
      }
      const int mul = rewriter_.hidden_producer(outer.other, "Mul");
      return mul != Rewriter::kNone && (match_factored(mul, 0, 1) || match_factored(mul, 1, 1));
    }
    // The factor stands at x instead.
    const int mul = outer.scalar == 1 ? rewriter_.hidden_producer(argument, "Mul") : Rewriter::kNone;
    return mul != Rewriter::kNone && (match_factored(mul, 0, kRootTwoOverPi) || match_factored(mul, 1, kRootTwoOverPi));
  }

  bool match_sum(int add) {
    for (const std::size_t side : {0u, 1u}) {
      const std::size_t kept = nodes_.size();
      const auto& inputs = rewriter_.node(add).inputs;
      x_ = inputs[side];
      if (is_monomial(inputs[1 - side], kCubic, 3)) {
        nodes_.push_back(add);
        return true;
      }
      nodes_.resize(kept);
    }
    return false;
  }

  // (factor * x) * (1 + c x^2), with x on `side`.
  bool match_factored(int mul, std::size_t side, double factor) {
    const std::size_t kept = nodes_.size();
    const auto& inputs = rewriter_.node(mul).inputs;
    const ScalarOperand linear = factor == 1 ? ScalarOperand{inputs[side], 1} : scaled(inputs[side]);
    x_ = linear.other;
    const int add = rewriter_.hidden_producer(inputs[1 - side], "Add");
    if (near(linear.scalar, factor) && add != Rewriter::kNone) {
      const auto one = scalar_operand(rewriter_.graph(), rewriter_.node(add));
      if (one && one->scalar == 1) {
        if (is_monomial(one->other, kCubic, 2)) {
          nodes_.insert(nodes_.end(), {mul, add});
          return true;
        }
      }
    }
    nodes_.resize(kept);
    return false;
  }

  // 1 + f, times x and 1/2 in any order.
  bool match_product(int function) {
    int index = rewriter_.sole_user(rewriter_.node(function).outputs[0], "Add");
    if (index == Rewriter::kNone) {
      return false;
    }
    const auto one = scalar_operand(rewriter_.graph(), rewriter_.node(index));
    if (!one || one->scalar != 1) {
      return false;
    }
    nodes_.push_back(index);
    double factor = 1;
    bool has_x = false;
    while (!has_x || near(factor, 1)) {
      const ValueId from = rewriter_.node(index).outputs[0];
      index = rewriter_.sole_user(from);
      if (index == Rewriter::kNone || !take_factor(index, from, factor, has_x)) {
        return false;
      }
      nodes_.push_back(index);
    }
    last_ = index;
    return near(factor, 0.5);
  }

  bool take_factor(int index, ValueId from, double& factor, bool& has_x) {
    const Node& node = rewriter_.node(index);
    if (!is_op(node, "Mul") && !is_op(node, "Div")) {
      return false;
    }
    if (const auto operand = scalar_operand(rewriter_.graph(), node); operand && operand->other == from) {
      factor *= is_op(node, "Div") ? 1 / operand->scalar : operand->scalar;
      return true;
    }
    if (has_x || !is_op(node, "Mul")) {
      return false;
    }
    const ValueId other = node.inputs[node.inputs[0] == from ? 1 : 0];
    if (other != x_) {
      const ScalarOperand operand = scaled(other);
      if (operand.other != x_) {
        return false;
      }
      factor *= operand.scalar;
    }
    has_x = true;
    return true;
  }

  const Rewriter& rewriter_;
  std::vector<int> nodes_;
  ValueId x_ = kNoValue;
  int last_ = Rewriter::kNone;
};

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    const bool erf = is_op(rewriter.node(i), "Erf");
    if ((!erf && !is_op(rewriter.node(i), "Tanh")) || rewriter.node(i).inputs.empty()) {
      continue;
    }
    Matcher matcher(rewriter);
    if (!matcher.match(i)) {
      continue;
    }
    const ValueId result = rewriter.node(matcher.last()).outputs[0];
    if (rewriter.dims(matcher.x()) != rewriter.dims(result)) {
      continue;
    }
    Node made = own_node("FusedActivation", rewriter.node(i).opset, {matcher.x()}, result);
    made.set("activation", std::string(erf ? "gelu" : "gelu_tanh"));
    if (Status status = rewriter.fuse(matcher.nodes(), std::move(made)); !status.ok()) {
      return status;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_gelu() {
  return {"gelu", "GELU, exact or by Tanh, in the forms that exporters write as one node", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
