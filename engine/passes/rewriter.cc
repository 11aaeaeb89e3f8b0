#include "passes/rewriter.h"

#include <algorithm>
#include <cmath>

#include "ir/half.h"
#include "operators/registry.h"

namespace sluice::engine {

bool is_op(const Node& node, std::string_view op) { return node.op == op && node.domain.empty(); }

std::optional<double> scalar_of(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id)) {
    return std::nullopt;
  }
  const Tensor& tensor = *graph.value(id).constant;
  const bool is_float = tensor.dtype() == DType::kFloat || tensor.dtype() == DType::kFloat16 ||
                        tensor.dtype() == DType::kDouble || tensor.dtype() == DType::kBFloat16;
  return is_float && tensor.elements() == 1 ? std::optional<double>(tensor.as_double(0)) : std::nullopt;
}

bool is_scalar(const Graph& graph, ValueId id, double expected) {
  const auto value = scalar_of(graph, id);
  if (!value) {
    return false;
  }
  // Exporters write constants with six digits or more; half precision has three.
  const double tolerance = graph.value(id).type.dtype == DType::kFloat16 ? 1e-3 : 2e-6;
  return std::abs(*value - expected) <= tolerance * std::abs(expected);
}

std::optional<ScalarOperand> scalar_operand(const Graph& graph, const Node& node) {
  if (node.inputs.size() != 2) {
    return std::nullopt;
  }
  if (const auto right = scalar_of(graph, node.inputs[1])) {
    return ScalarOperand{node.inputs[0], *right};
  }
  const auto left = scalar_of(graph, node.inputs[0]);
  return left && (is_op(node, "Add") || is_op(node, "Mul")) ? std::optional(ScalarOperand{node.inputs[1], *left})
                                                            : std::nullopt;
}

Result<Tensor> float_tensor(DType dtype, const Dims& dims, std::span<const double> values) {
  auto tensor = Tensor::allocate(dtype, dims);
  if (!tensor.ok()) {
    return tensor;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kDouble:
        tensor->mutable_as<double>()[i] = values[i];
        break;
      case DType::kFloat16:
        tensor->mutable_as<std::uint16_t>()[i] = float_to_half(static_cast<float>(values[i]));
        break;
      case DType::kBFloat16:
        tensor->mutable_as<std::uint16_t>()[i] = float_to_bfloat16(static_cast<float>(values[i]));
        break;
      default:
        tensor->mutable_as<float>()[i] = static_cast<float>(values[i]);
    }
  }
  return tensor;
}

Node own_node(std::string_view op, int opset, std::vector<ValueId> inputs, ValueId output) {
  Node node;
  node.domain = kOwnDomain;
  node.op = op;
  node.opset = opset;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  return node;
}

Rewriter::Rewriter(Graph& graph) : graph_(graph), uses_(graph), gone_(graph.nodes.size(), false) {}

int Rewriter::producer(ValueId id, std::string_view op) const {
  const int index = id == kNoValue ? kNone : producer(id);
  return index != kNone && is_op(node(index), op) ? index : kNone;
}

int Rewriter::hidden_producer(ValueId id, std::string_view op) const {
  const int index = producer(id, op);
  return index != kNone && sole_user(id) != kNone ? index : kNone;
}

int Rewriter::sole_user(ValueId id, std::string_view op) const {
  const int index = sole_user(id);
  return index != kNone && is_op(node(index), op) ? index : kNone;
}

void Rewriter::forget(int index) {
  for (const ValueId id : node(index).inputs) {
    if (id != kNoValue) {
      auto& users = uses_.users[static_cast<std::size_t>(id)];
      users.erase(std::find(users.begin(), users.end(), index));
    }
  }
  for (const ValueId id : node(index).outputs) {
    if (id != kNoValue) {
      uses_.producer[static_cast<std::size_t>(id)] = kNone;
    }
  }
}

void Rewriter::learn(int index) {
  uses_.producer.resize(graph_.values.size(), kNone);
  uses_.users.resize(graph_.values.size());
  uses_.is_output.resize(graph_.values.size(), false);
  for (const ValueId id : node(index).inputs) {
    if (id != kNoValue) {
      uses_.users[static_cast<std::size_t>(id)].push_back(index);
    }
  }
  for (const ValueId id : node(index).outputs) {
    if (id != kNoValue) {
      uses_.producer[static_cast<std::size_t>(id)] = index;
    }
  }
}

Status Rewriter::fuse(std::vector<int> gone, Node made) {
  if (Status status = bind_schema(graph_, made); !status.ok()) {
    return status;
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  if (made.name.empty()) {
    made.name = node(gone.front()).name;
  }
  for (const int index : gone) {
    forget(index);
    node(index).inputs.clear();
    node(index).outputs.clear();
    gone_[static_cast<std::size_t>(index)] = true;
  }
  const int place = gone.back();
  node(place) = std::move(made);
  gone_[static_cast<std::size_t>(place)] = false;
  learn(place);
  ++changes_;
  return {};
}

std::size_t Rewriter::finish() {
  std::size_t i = 0;
  std::erase_if(graph_.nodes, [&](const Node&) { return gone_[i++]; });
  return changes_;
}

}  // namespace sluice::engine
