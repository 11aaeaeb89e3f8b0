// A graph while a pass rewrites it: who computes and who uses each value, kept current through every change.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace sluice::engine {

// Of ai.onnx, whatever the opset.
bool is_op(const Node& node, std::string_view op);

// The value of a constant of one float element, whatever its rank.
std::optional<double> scalar_of(const Graph& graph, ValueId id);
// Whether a constant's only element is `expected`, up to how exporters round it.
bool is_scalar(const Graph& graph, ValueId id, double expected);

// "a op scalar" for a node of two inputs: the input that is no scalar, and the scalar. Either side where the operator
// commutes (Add, Mul), else the right one.
struct ScalarOperand {
  ValueId other = kNoValue;
  double scalar = 0;
};
std::optional<ScalarOperand> scalar_operand(const Graph& graph, const Node& node);

// A node of the passes' own domain.
Node own_node(std::string_view op, int opset, std::vector<ValueId> inputs, ValueId output);

// A constant tensor in the element type `dtype` (a float type).
Result<Tensor> float_tensor(DType dtype, const Dims& dims, std::span<const double> values);

class Rewriter {
 public:
  static constexpr int kNone = -1;

  explicit Rewriter(Graph& graph);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  int size() const { return static_cast<int>(graph_.nodes.size()); }
  Node& node(int index) { return graph_.nodes[static_cast<std::size_t>(index)]; }
  const Node& node(int index) const { return graph_.nodes[static_cast<std::size_t>(index)]; }
  const Dims& dims(ValueId id) const { return graph_.value(id).type.dims; }

  // The node that computes a value; kNone: an input or a constant.
  int producer(ValueId id) const { return uses_.producer[static_cast<std::size_t>(id)]; }
  // The same, if it is of this operator.
  int producer(ValueId id, std::string_view op) const;
  // The same, if moreover nobody but one node uses the value: a node that a fusion may take in.
  int hidden_producer(ValueId id, std::string_view op) const;
  // The one node that uses a value that is no graph output; kNone otherwise.
  int sole_user(ValueId id) const { return uses_.sole_user(id); }
  int sole_user(ValueId id, std::string_view op) const;
  const std::vector<std::int32_t>& users(ValueId id) const { return uses_.users[static_cast<std::size_t>(id)]; }
  bool is_output(ValueId id) const { return uses_.is_output[static_cast<std::size_t>(id)]; }

  // Replaces nodes by one that computes what the last of them computed, and binds it. It takes the place of that last
  // one, so that all its inputs are computed before it. Its name is that of the first, unless it has one. REQUIRES:
  // every value that the others compute has no users outside `gone`. Errors: what the registry says against it; the
  // graph is then as it was.
  Status fuse(std::vector<int> gone, Node made);
  // A node is about to be given other inputs or attributes in place.
  Status change(int index, Node made) { return fuse({index}, std::move(made)); }

  // Drops what was replaced. Returns how many changes there were.
  std::size_t finish();

 private:
  void forget(int index);
  void learn(int index);

  Graph& graph_;
  Uses uses_;
  std::vector<bool> gone_;
  std::size_t changes_ = 0;
};

}  // namespace sluice::engine
