// Attention, softmax(scale * Q K^T + mask) V for each head, becomes one node that reads Q, K and V where the products
// before it left them: the splitting into heads and its transposes go.
#include <algorithm>

#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

using Ints = std::vector<std::int64_t>;

// One of Q, K, V as [B, heads, S, size], or K as [B, heads, size, S]: columns of rows [B, S, *].
struct Heads {
  ValueId rows = kNoValue;
  std::int64_t offset = 0, heads = 0, size = 0;
  double scale = 1;
  bool transposed = false;
};

bool is_permutation(const Node& node, const Ints& perm) { return node.get_ints("perm") == perm; }

class Matcher {
 public:
  explicit Matcher(const Rewriter& rewriter) : rewriter_(rewriter) {}

  // From the Softmax on. What lies before the heads stays, if others use it, and goes as dead code otherwise.
  bool match(int softmax) {
    const Node& node = rewriter_.node(softmax);
    const ValueId scores = node.inputs[0];
    const auto axis = node.get_int("axis", node.opset < 13 ? 1 : -1);
    if (rewriter_.dims(scores).size() != 4 || (axis != -1 && axis != 3)) {
      return false;
    }
    nodes_ = {softmax};
    return match_scores(scores) && match_result(softmax);
  }

  const std::vector<int>& nodes() const { return nodes_; }
  Node made(int softmax) const {
    Node node =
        own_node("FusedAttention", rewriter_.node(softmax).opset, {query_.rows, key_.rows, value_.rows}, result_);
    if (mask_ != kNoValue) {
      node.inputs.push_back(mask_);
    }
    node.set("heads", query_.heads);
    node.set("head_size", query_.size);
    node.set("offsets", Ints{query_.offset, key_.offset, value_.offset});
    node.set("scale", static_cast<float>(scale_ * query_.scale * key_.scale));
    return node;
  }

 private:
  // Takes a product or quotient with a constant; true if `id` changed.
  bool unscale(ValueId& id, double& scale) const {
    const int index = rewriter_.producer(id);
    if (index == Rewriter::kNone) {
      return false;
    }
    const Node& node = rewriter_.node(index);
    const bool division = is_op(node, "Div");
    const auto operand = division || is_op(node, "Mul") ? scalar_operand(rewriter_.graph(), node) : std::nullopt;
    if (!operand || operand->scalar == 0 || rewriter_.dims(operand->other) != rewriter_.dims(id)) {
      return false;
    }
    scale *= division ? 1 / operand->scalar : operand->scalar;
    id = operand->other;
    return true;
  }

  std::optional<Heads> heads_of(ValueId id) const {
    Heads found;
    unscale(id, found.scale);
    int index = rewriter_.producer(id, "Transpose");
    if (index != Rewriter::kNone && is_permutation(rewriter_.node(index), {0, 1, 3, 2})) {
      found.transposed = true;
      id = rewriter_.node(index).inputs[0];
      unscale(id, found.scale);
      index = rewriter_.producer(id, "Transpose");
    }
    if (const int gather = rewriter_.producer(id, "Gather"); gather != Rewriter::kNone) {
      return gathered(gather, found);
    }
    if (index == Rewriter::kNone) {
      return std::nullopt;
    }
    const Node& transpose = rewriter_.node(index);
    if (is_permutation(transpose, {0, 2, 3, 1}) && !found.transposed) {
      found.transposed = true;
    } else if (!is_permutation(transpose, {0, 2, 1, 3})) {
      return std::nullopt;
    }
    const ValueId parts = transpose.inputs[0];
    const Dims& dims = rewriter_.dims(parts);
    found.heads = dims[2];
    found.size = dims[3];
    return rows_of(parts, dims[2] * dims[3], found) ? std::optional(found) : std::nullopt;
  }

  // One of three of [3, B, heads, S, size], which came from [B, S, 3, heads, size].
  std::optional<Heads> gathered(int gather, Heads found) const {
    const Node& node = rewriter_.node(gather);
    const int transpose = rewriter_.producer(node.inputs[0], "Transpose");
    if (transpose == Rewriter::kNone || node.get_int("axis", 0) != 0 ||
        !rewriter_.graph().is_constant(node.inputs[1]) || !is_permutation(rewriter_.node(transpose), {2, 0, 3, 1, 4})) {
      return std::nullopt;
    }
    const Tensor& which = *rewriter_.graph().value(node.inputs[1]).constant;
    const ValueId parts = rewriter_.node(transpose).inputs[0];
    const Dims& dims = rewriter_.dims(parts);
    if (!which.dims().empty() || which.as_int(0) < 0 || which.as_int(0) >= dims[2]) {
      return std::nullopt;
    }
    found.heads = dims[3];
    found.size = dims[4];
    found.offset = which.as_int(0) * found.heads * found.size;
    return rows_of(parts, dims[2] * dims[3] * dims[4], found) ? std::optional(found) : std::nullopt;
  }

  // The rows [B, S, columns] that a Reshape cut into heads, or those that a Split took them from.
  bool rows_of(ValueId parts, std::int64_t columns, Heads& found) const {
    const int reshape = rewriter_.producer(parts, "Reshape");
    if (reshape == Rewriter::kNone) {
      return false;
    }
    const Dims& to = rewriter_.dims(parts);
    found.rows = rewriter_.node(reshape).inputs[0];
    if (rewriter_.dims(found.rows) != Dims{to[0], to[1], columns}) {
      return false;
    }
    const int split = rewriter_.producer(found.rows, "Split");
    const auto axis = split == Rewriter::kNone ? 0 : rewriter_.node(split).get_int("axis", 0);
    if (axis == 2 || axis == -1) {
      for (const ValueId part : rewriter_.node(split).outputs) {
        if (part == found.rows) {
          break;
        }
        found.offset += rewriter_.dims(part)[2];
      }
      found.rows = rewriter_.node(split).inputs[0];
    }
    return true;
  }

  // Adds the producer of a value that nobody else uses to what goes.
  bool hide(ValueId id) {
    const int index = rewriter_.producer(id);
    if (index == Rewriter::kNone || rewriter_.sole_user(id) == Rewriter::kNone) {
      return false;
    }
    nodes_.push_back(index);
    return true;
  }

  bool match_scores(ValueId scores) {
    const Dims dims = rewriter_.dims(scores);
    const int add = rewriter_.producer(scores, "Add");
    if (!hide(scores)) {
      return false;
    }
    if (add == Rewriter::kNone) {
      return match_product(scores, true);
    }
    const auto inputs = rewriter_.node(add).inputs;
    for (const std::size_t side : {0u, 1u}) {
      const std::size_t kept = nodes_.size();
      mask_ = inputs[1 - side];
      if (rewriter_.dims(inputs[side]) == dims && rewriter_.graph().value(mask_).type.dims.size() <= 4 &&
          match_product(inputs[side], false)) {
        return true;
      }
      nodes_.resize(kept);
    }
    return false;
  }

  // scale * Q K^T.
  bool match_product(ValueId id, bool hidden) {
    if (!hidden && !hide(id)) {
      return false;
    }
    scale_ = 1;
    if (unscale(id, scale_) && !hide(id)) {
      return false;
    }
    const int product = rewriter_.producer(id, "MatMul");
    if (product == Rewriter::kNone) {
      return false;
    }
    const auto query = heads_of(rewriter_.node(product).inputs[0]), key = heads_of(rewriter_.node(product).inputs[1]);
    if (!query || !key || query->transposed || !key->transposed) {
      return false;
    }
    query_ = *query;
    key_ = *key;
    return true;
  }

  // The product with V, and the heads put together again.
  bool match_result(int softmax) {
    const ValueId weights = rewriter_.node(softmax).outputs[0];
    const int product = rewriter_.sole_user(weights, "MatMul");
    if (product == Rewriter::kNone || rewriter_.node(product).inputs[0] != weights) {
      return false;
    }
    const auto value = heads_of(rewriter_.node(product).inputs[1]);
    const int transpose = rewriter_.sole_user(rewriter_.node(product).outputs[0], "Transpose");
    if (!value || value->transposed || value->scale != 1 || transpose == Rewriter::kNone ||
        !is_permutation(rewriter_.node(transpose), {0, 2, 1, 3})) {
      return false;
    }
    value_ = *value;
    const int reshape = rewriter_.sole_user(rewriter_.node(transpose).outputs[0], "Reshape");
    if (reshape == Rewriter::kNone || rewriter_.node(reshape).inputs[0] != rewriter_.node(transpose).outputs[0]) {
      return false;
    }
    result_ = rewriter_.node(reshape).outputs[0];
    nodes_.insert(nodes_.end(), {product, transpose, reshape});
    const Dims& dims = rewriter_.dims(query_.rows);
    return query_.heads == key_.heads && query_.heads == value_.heads && query_.size == key_.size &&
           query_.size == value_.size && rewriter_.dims(key_.rows)[0] == dims[0] &&
           rewriter_.dims(value_.rows)[0] == dims[0] &&
           rewriter_.dims(result_) == Dims{dims[0], dims[1], query_.heads * query_.size};
  }

  const Rewriter& rewriter_;
  std::vector<int> nodes_;
  Heads query_, key_, value_;
  ValueId mask_ = kNoValue, result_ = kNoValue;
  double scale_ = 1;
};

Result<std::size_t> run(Graph& graph, const PassContext&) {
  Rewriter rewriter(graph);
  for (int i = 0; i < rewriter.size(); ++i) {
    if (!is_op(rewriter.node(i), "Softmax") || graph.value(rewriter.node(i).outputs[0]).type.dtype == DType::kDouble) {
      continue;
    }
    Matcher matcher(rewriter);
    if (!matcher.match(i)) {
      continue;
    }
    if (Status status = rewriter.fuse(matcher.nodes(), matcher.made(i)); !status.ok()) {
      return status;
    }
  }
  const std::size_t changes = rewriter.finish();
  graph.remove_dead();
  return changes;
}

}  // namespace

Pass make_attention() {
  return {"attention", "attention with its splitting into heads as one node", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
