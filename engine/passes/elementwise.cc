// Chains and trees of elementwise nodes become one node: each element is read once and written once.
#include <fmt/format.h>

#include <algorithm>

#include "operators/elementwise_steps.h"
#include "passes/node_activation.h"
#include "passes/pass.h"

namespace sluice::engine {
namespace {

constexpr std::size_t kMostInputs = 8;

// A standard operator that is a step of the same name.
struct Plain {
  const char* op;
  const char* step;
};
constexpr Plain kPlain[] = {{"Add", "add"},     {"Sub", "sub"},   {"Mul", "mul"},
                            {"Div", "div"},     {"Pow", "pow"},   {"Abs", "abs"},
                            {"Ceil", "ceil"},   {"Erf", "erf"},   {"Exp", "exp"},
                            {"Floor", "floor"}, {"Log", "log"},   {"Neg", "neg"},
                            {"Round", "round"}, {"Sqrt", "sqrt"}, {"Max", "max"},
                            {"Min", "min"},     {"Sum", "add"},   {"Reciprocal", "reciprocal"}};

// The step that a node is, without operands; empty if it is none.
std::string step_of(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty()) {
    return "";
  }
  const DType dtype = graph.value(node.outputs[0]).type.dtype;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue && node.op != "Clip") {
      return "";
    }
  }
  if ((dtype != DType::kFloat && dtype != DType::kFloat16) || graph.value(node.inputs[0]).type.dtype != dtype) {
    return "";
  }
  if (const auto activation = node_activation(graph, node)) {
    return activation_name(activation->kind);
  }
  for (const Plain& plain : kPlain) {
    if (is_op(node, plain.op)) {
      const bool variadic = node.op == "Max" || node.op == "Min" || node.op == "Sum";
      const bool same = node.inputs.size() < 2 || graph.value(node.inputs[1]).type.dtype == dtype;
      return same && (!variadic || node.inputs.size() == 2) ? plain.step : "";
    }
  }
  return "";
}

// The parameters that an activation's step takes.
std::string parameters_of(const Activation& activation) {
  switch (activation.kind) {
    case ActivationKind::kLeakyRelu:
    case ActivationKind::kElu:
      return fmt::format(" {}", activation.alpha);
    case ActivationKind::kClip:
    case ActivationKind::kHardSigmoid:
    case ActivationKind::kHardSwish:
      return fmt::format(" {} {}", activation.alpha, activation.beta);
    default:
      return "";
  }
}

// The tree of nodes that end in one, as steps.
class Tree {
 public:
  Tree(const Rewriter& rewriter, int root) : rewriter_(rewriter), root_(root) { add(root); }

  const std::vector<int>& nodes() const { return nodes_; }
  const std::vector<std::string>& steps() const { return steps_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }

  // Whether the result has the shape that its inputs broadcast to: constants that became numbers no longer count.
  bool keeps_shape() const {
    const Dims& out = rewriter_.dims(rewriter_.node(root_).outputs[0]);
    Dims wide(out.size(), 1);
    std::size_t rank = 0;
    for (const ValueId id : inputs_) {
      const Dims& dims = rewriter_.dims(id);
      rank = std::max(rank, dims.size());
      for (std::size_t d = 0; d < dims.size() && d < out.size(); ++d) {
        std::int64_t& length = wide[out.size() - 1 - d];
        length = length == 1 ? dims[dims.size() - 1 - d] : length;
      }
    }
    return rank == out.size() && wide == out;
  }

 private:
  // Adds a node and what it can take in; returns its step's number.
  std::size_t add(int index) {
    const Node& node = rewriter_.node(index);
    nodes_.push_back(index);
    std::string text = step_of(rewriter_.graph(), node);
    const auto activation = node_activation(rewriter_.graph(), node);
    const std::size_t operands = activation ? 1 : node.inputs.size();
    for (std::size_t i = 0; i < operands; ++i) {
      text += " " + operand(node.inputs[i]);
    }
    if (activation) {
      text += parameters_of(*activation);
    }
    steps_.push_back(std::move(text));
    return steps_.size() - 1;
  }

  std::string operand(ValueId id) {
    if (const auto number = scalar_of(rewriter_.graph(), id)) {
      return fmt::format("{}", static_cast<float>(*number));
    }
    const int producer = rewriter_.producer(id);
    // Steps that wait for their operands count as well.
    if (producer != Rewriter::kNone && rewriter_.sole_user(id) != Rewriter::kNone && nodes_.size() < kMostSteps &&
        inputs_.size() + 1 < kMostInputs && !step_of(rewriter_.graph(), rewriter_.node(producer)).empty() &&
        rewriter_.dims(id) == rewriter_.dims(rewriter_.node(root_).outputs[0])) {
      return fmt::format("s{}", add(producer));
    }
    const auto found = std::find(inputs_.begin(), inputs_.end(), id);
    if (found == inputs_.end()) {
      inputs_.push_back(id);
      return fmt::format("i{}", inputs_.size() - 1);
    }
    return fmt::format("i{}", found - inputs_.begin());
  }

  const Rewriter& rewriter_;
  const int root_;
  std::vector<int> nodes_;
  std::vector<std::string> steps_;
  std::vector<ValueId> inputs_;
};

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = rewriter.size(); i-- > 0;) {  // from the ends of the trees
    if (rewriter.node(i).outputs.empty() || step_of(graph, rewriter.node(i)).empty()) {
      continue;
    }
    const Tree tree(rewriter, i);
    if (tree.nodes().size() < 2 || tree.inputs().empty() || !tree.keeps_shape()) {
      continue;
    }
    Node made = own_node("FusedElementwise", rewriter.node(i).opset, tree.inputs(), rewriter.node(i).outputs[0]);
    made.set("steps", tree.steps());
    if (Status status = rewriter.fuse(tree.nodes(), std::move(made)); !status.ok()) {
      return status;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_elementwise() {
  return {"elementwise", "chains of elementwise nodes as one node", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
