// LayerNormalization as exporters write it before opset 17 becomes that operator: x less its mean, divided by the root
// of the mean of its squares and epsilon, times gamma plus beta.
#include <cmath>

#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

constexpr int kOpset = 17;  // of LayerNormalization, which devices know whatever the model's

struct Match {
  std::vector<int> nodes;
  ValueId x = kNoValue, gamma = kNoValue, beta = kNoValue, result = kNoValue;
  std::int64_t axis = 0;
  double epsilon = 0;
};

// The first of the last axes that a ReduceMean goes over; nothing if it goes over others, or drops them.
std::optional<std::int64_t> mean_axis(const Rewriter& rewriter, int index) {
  const Node& node = rewriter.node(index);
  const auto rank = static_cast<std::int64_t>(rewriter.dims(node.inputs[0]).size());
  std::vector<std::int64_t> axes = node.get_ints("axes");
  if (axes.empty() || node.get_int("keepdims", 1) == 0) {
    return std::nullopt;
  }
  std::vector<bool> reduced(static_cast<std::size_t>(rank), false);
  for (const std::int64_t axis : axes) {
    reduced[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  std::int64_t first = rank;
  while (first > 0 && reduced[static_cast<std::size_t>(first - 1)]) {
    --first;
  }
  const bool only_last = std::count(reduced.begin(), reduced.end(), true) == rank - first && first < rank;
  return only_last ? std::optional(first) : std::nullopt;
}

class Matcher {
 public:
  explicit Matcher(const Rewriter& rewriter) : rewriter_(rewriter) {}
  const Match& found() const { return match_; }

  // From the Div of the centred value on.
  bool match(int division) {
    const Node& node = rewriter_.node(division);
    match_.nodes = {division};
    const ValueId centred = node.inputs[0];
    const int root = rewriter_.hidden_producer(node.inputs[1], "Sqrt");
    if (root == Rewriter::kNone || !match_variance(rewriter_.node(root).inputs[0], centred)) {
      return false;
    }
    match_.nodes.push_back(root);
    match_.result = node.outputs[0];
    return rewriter_.dims(match_.result) == rewriter_.dims(match_.x);
  }

  // Times gamma, plus beta, where they are constants that fit.
  void take_affine() {
    const auto take = [&](std::string_view op) {
      const int user = rewriter_.sole_user(match_.result, op);
      if (user == Rewriter::kNone) {
        return kNoValue;
      }
      const auto& inputs = rewriter_.node(user).inputs;
      const ValueId other = inputs[inputs[0] == match_.result ? 1 : 0];
      if (other == match_.result || !fits(other)) {
        return kNoValue;
      }
      match_.nodes.push_back(user);
      match_.result = rewriter_.node(user).outputs[0];
      return other;
    };
    match_.gamma = take("Mul");
    match_.beta = take("Add");
  }

 private:
  bool fits(ValueId id) const {
    const Dims& x = rewriter_.dims(match_.x);
    const Dims& dims = rewriter_.dims(id);
    std::int64_t wanted = 1;
    for (auto d = static_cast<std::size_t>(match_.axis); d < x.size(); ++d) {
      wanted *= x[d];
    }
    // With as many elements as the normalised part, its last dimensions must be that part's.
    const std::size_t part = x.size() - static_cast<std::size_t>(match_.axis);
    return rewriter_.graph().is_constant(id) && dims.size() >= part && dims.size() <= x.size() &&
           element_count(dims) == wanted &&
           std::equal(dims.end() - static_cast<std::ptrdiff_t>(part), dims.end(),
                      x.end() - static_cast<std::ptrdiff_t>(part));
  }

  // x - mean(x), twice if the exporter wrote it twice.
  bool match_centred(ValueId id, std::size_t users) {
    const int sub = rewriter_.producer(id, "Sub");
    if (sub == Rewriter::kNone || rewriter_.is_output(id) || rewriter_.users(id).size() != users) {
      return false;
    }
    const ValueId x = rewriter_.node(sub).inputs[0], mean = rewriter_.node(sub).inputs[1];
    const int reduce = rewriter_.producer(mean, "ReduceMean");
    if (reduce == Rewriter::kNone || rewriter_.is_output(mean) || rewriter_.node(reduce).inputs[0] != x ||
        (match_.x != kNoValue && match_.x != x)) {
      return false;
    }
    const auto axis = mean_axis(rewriter_, reduce);
    if (!axis || *axis != match_.axis) {
      return false;
    }
    match_.x = x;
    match_.nodes.insert(match_.nodes.end(), {sub, reduce});
    means_.push_back(mean);
    return true;
  }

  bool match_variance(ValueId id, ValueId centred) {
    const int add = rewriter_.hidden_producer(id, "Add");
    const auto epsilon = add == Rewriter::kNone ? std::nullopt : scalar_operand(rewriter_.graph(), rewriter_.node(add));
    const int reduce = epsilon ? rewriter_.hidden_producer(epsilon->other, "ReduceMean") : Rewriter::kNone;
    if (reduce == Rewriter::kNone || epsilon->scalar < 0) {
      return false;
    }
    const auto axis = mean_axis(rewriter_, reduce);
    const ValueId squares = rewriter_.node(reduce).inputs[0];
    if (!axis || rewriter_.sole_user(squares) != reduce) {
      return false;
    }
    match_.axis = *axis;
    match_.epsilon = epsilon->scalar;
    match_.nodes.insert(match_.nodes.end(), {add, reduce});
    const int pow = rewriter_.producer(squares, "Pow"), mul = rewriter_.producer(squares, "Mul");
    const int square = pow != Rewriter::kNone ? pow : mul;
    if (square == Rewriter::kNone) {
      return false;
    }
    const auto& inputs = rewriter_.node(square).inputs;
    if (pow != Rewriter::kNone ? !is_scalar(rewriter_.graph(), inputs[1], 2) : inputs[0] != inputs[1]) {
      return false;
    }
    match_.nodes.push_back(square);
    const std::size_t own_users = pow != Rewriter::kNone ? 1 : 2;
    const bool same = inputs[0] == centred;
    return match_centred(inputs[0], own_users + (same ? 1 : 0)) && (same || match_centred(centred, 1)) &&
           means_are_hidden();
  }

  // Every user of a mean is one of the nodes that go.
  bool means_are_hidden() const {
    for (const ValueId mean : means_) {
      for (const int user : rewriter_.users(mean)) {
        if (std::find(match_.nodes.begin(), match_.nodes.end(), user) == match_.nodes.end()) {
          return false;
        }
      }
    }
    return true;
  }

  const Rewriter& rewriter_;
  Match match_;
  std::vector<ValueId> means_;
};

// A constant with the dims of what is normalised, which LayerNormalization wants; ones, if there is none.
Result<ValueId> parameter(Graph& graph, ValueId id, const Match& match, const char* name) {
  const TensorType& x = graph.value(match.x).type;
  Dims dims(x.dims.begin() + match.axis, x.dims.end());
  if (id != kNoValue) {
    return graph.value(id).type.dims == dims
               ? id
               : graph.add_constant(graph.value(id).name, graph.value(id).constant->with_dims(std::move(dims)));
  }
  auto ones = float_tensor(x.dtype, dims, std::vector<double>(static_cast<std::size_t>(element_count(dims)), 1.0));
  if (!ones.ok()) {
    return ones.status();
  }
  return graph.add_constant(name, std::move(*ones));
}

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    if (!is_op(rewriter.node(i), "Div") || graph.value(rewriter.node(i).outputs[0]).type.dtype == DType::kDouble) {
      continue;
    }
    Matcher matcher(rewriter);
    if (!matcher.match(i)) {
      continue;
    }
    matcher.take_affine();
    const Match& match = matcher.found();
    auto gamma = parameter(graph, match.gamma, match, "layer_norm_ones");
    if (!gamma.ok()) {
      return gamma.status();
    }
    Node made;
    made.op = "LayerNormalization";
    made.opset = kOpset;
    made.name = rewriter.node(i).name;
    made.inputs = {match.x, *gamma};
    if (match.beta != kNoValue) {
      auto beta = parameter(graph, match.beta, match, "");
      if (!beta.ok()) {
        return beta.status();
      }
      made.inputs.push_back(*beta);
    }
    made.outputs = {match.result};
    made.set("axis", match.axis);
    made.set("epsilon", static_cast<float>(match.epsilon));
    if (Status status = rewriter.fuse(match.nodes, std::move(made)); !status.ok()) {
      return status;
    }
  }
  return rewriter.finish();
}

}  // namespace

Pass make_layer_norm() {
  return {"layer_norm", "LayerNormalization written with ReduceMean, Sqrt and Div as one node", Pass::Stage::kProgram,
          run};
}

}  // namespace sluice::engine
