#include "ir/graph.h"

#include <algorithm>

namespace sluice::engine {

const Attribute* Node::find(std::string_view attribute) const {
  for (const Attribute& candidate : attributes) {
    if (candidate.name == attribute) {
      return &candidate;
    }
  }
  return nullptr;
}

namespace {

template <class T>
const T* get(const Node& node, std::string_view attribute) {
  const Attribute* found = node.find(attribute);
  return found == nullptr ? nullptr : std::get_if<T>(&found->value);
}

}  // namespace

std::int64_t Node::get_int(std::string_view attribute, std::int64_t fallback) const {
  const auto* value = get<std::int64_t>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

float Node::get_float(std::string_view attribute, float fallback) const {
  const auto* value = get<float>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

std::string Node::get_string(std::string_view attribute, std::string_view fallback) const {
  const auto* value = get<std::string>(*this, attribute);
  return value == nullptr ? std::string(fallback) : *value;
}

std::vector<std::int64_t> Node::get_ints(std::string_view attribute, std::vector<std::int64_t> fallback) const {
  const auto* value = get<std::vector<std::int64_t>>(*this, attribute);
  if (value != nullptr) {
    return *value;
  }
  return fallback;
}

std::vector<float> Node::get_floats(std::string_view attribute, std::vector<float> fallback) const {
  const auto* value = get<std::vector<float>>(*this, attribute);
  if (value != nullptr) {
    return *value;
  }
  return fallback;
}

const Tensor* Node::get_tensor(std::string_view attribute) const { return get<Tensor>(*this, attribute); }

const Graph* Node::get_graph(std::string_view attribute) const {
  const auto* graph = get<std::shared_ptr<const Graph>>(*this, attribute);
  return graph == nullptr ? nullptr : graph->get();
}

void Node::set(std::string_view attribute, decltype(Attribute::value) value) {
  for (Attribute& candidate : attributes) {
    if (candidate.name == attribute) {
      candidate.value = std::move(value);
      return;
    }
  }
  attributes.push_back({std::string(attribute), std::move(value)});
}

ValueId Graph::add_value(std::string value_name, TensorType type, bool has_shape) {
  values.push_back({std::move(value_name), std::move(type), has_shape, std::nullopt});
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string value_name, Tensor tensor) {
  const ValueId id = add_value(std::move(value_name), tensor.type(), true);
  value(id).constant = std::move(tensor);
  return id;
}

bool Graph::is_output(ValueId id) const { return std::find(outputs.begin(), outputs.end(), id) != outputs.end(); }

std::size_t Graph::remove_dead() {
  std::vector<bool> needed(values.size(), false);
  for (const ValueId id : outputs) {
    needed[static_cast<std::size_t>(id)] = true;
  }
  std::vector<bool> keep(nodes.size(), false);
  for (std::size_t i = nodes.size(); i-- > 0;) {
    for (const ValueId id : nodes[i].outputs) {
      keep[i] = keep[i] || (id != kNoValue && needed[static_cast<std::size_t>(id)]);
    }
    if (keep[i]) {
      for (const ValueId id : nodes[i].inputs) {
        if (id != kNoValue) {
          needed[static_cast<std::size_t>(id)] = true;
        }
      }
    }
  }
  const std::size_t before = nodes.size();
  std::size_t i = 0;
  std::erase_if(nodes, [&](const Node&) { return !keep[i++]; });
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (!needed[v]) {
      values[v].constant.reset();
    }
  }
  return before - nodes.size();
}

Uses::Uses(const Graph& graph)
    : producer(graph.values.size(), -1), users(graph.values.size()), is_output(graph.values.size(), false) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].inputs) {
      if (id != kNoValue) {
        users[static_cast<std::size_t>(id)].push_back(static_cast<std::int32_t>(i));
      }
    }
    for (const ValueId id : graph.nodes[i].outputs) {
      if (id != kNoValue) {
        producer[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(i);
      }
    }
  }
  for (const ValueId id : graph.outputs) {
    is_output[static_cast<std::size_t>(id)] = true;
  }
}

std::int32_t Uses::sole_user(ValueId id) const {
  const auto index = static_cast<std::size_t>(id);
  return !is_output[index] && users[index].size() == 1 ? users[index][0] : -1;
}

}  // namespace sluice::engine
