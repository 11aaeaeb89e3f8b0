// The graph that passes rewrite and devices compile. Values are numbered; nodes stand in topological order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/tensor.h"

namespace sluice::engine {

struct Graph;
struct Schema;

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional input or output that is left out

// The domain of operators that passes make and no file can name.
inline constexpr std::string_view kOwnDomain = "sluice";

// The order is that of Attribute::value.
enum class AttributeKind : std::uint8_t { kFloat, kInt, kString, kTensor, kFloats, kInts, kStrings, kGraph };

struct Attribute {
  std::string name;
  std::variant<float, std::int64_t, std::string, Tensor, std::vector<float>, std::vector<std::int64_t>,
               std::vector<std::string>, std::shared_ptr<const Graph>>
      value;
  AttributeKind kind() const { return static_cast<AttributeKind>(value.index()); }
};

struct Node {
  std::string name;    // may be empty
  std::string domain;  // "" is ai.onnx
  std::string op;
  int opset = 0;  // of its domain
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<Attribute> attributes;
  const Schema* schema = nullptr;  // the registry's; set by bind_schemas()

  // nullptr if the node does not have it.
  const Attribute* find(std::string_view attribute) const;
  bool has(std::string_view attribute) const { return find(attribute) != nullptr; }
  // The attribute, or `fallback` if the node does not have it. REQUIRES: of that kind, as the schema checked.
  std::int64_t get_int(std::string_view attribute, std::int64_t fallback) const;
  float get_float(std::string_view attribute, float fallback) const;
  std::string get_string(std::string_view attribute, std::string_view fallback) const;
  std::vector<std::int64_t> get_ints(std::string_view attribute, std::vector<std::int64_t> fallback = {}) const;
  std::vector<float> get_floats(std::string_view attribute, std::vector<float> fallback = {}) const;
  const Tensor* get_tensor(std::string_view attribute) const;
  // A branch of an If. Its inputs are the values of the graph around it that it reads; they are inputs of the node too,
  // behind the condition: those of then_branch, then those of else_branch.
  const Graph* get_graph(std::string_view attribute) const;

  void set(std::string_view attribute, decltype(Attribute::value) value);
  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i] != kNoValue; }
  bool has_output(std::size_t i) const { return i < outputs.size() && outputs[i] != kNoValue; }
};

struct Value {
  std::string name;
  TensorType type;         // dims only if has_shape
  bool has_shape = false;  // dims are known numbers
  std::optional<Tensor> constant;
};

struct Graph {
  std::string name;
  std::vector<std::pair<std::string, std::string>> metadata;  // what the file says of itself, for who writes it again
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;  // without those that are constants
  std::vector<ValueId> outputs;
  std::vector<TensorSpec> input_specs;   // one for each input
  std::vector<TensorSpec> output_specs;  // one for each output

  ValueId add_value(std::string value_name, TensorType type = {}, bool has_shape = false);
  ValueId add_constant(std::string value_name, Tensor tensor);
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  bool is_output(ValueId id) const;
  bool is_constant(ValueId id) const { return id != kNoValue && value(id).constant.has_value(); }

  // Drops nodes whose results nobody uses, and the constants of values that nobody uses. Returns how many nodes went.
  std::size_t remove_dead();
};

// Who makes and who uses each value, as of the moment it is made; indices into Graph::nodes.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<std::int32_t> producer;            // by value; -1: an input or a constant
  std::vector<std::vector<std::int32_t>> users;  // by value; a node that reads it twice is there twice
  std::vector<bool> is_output;                   // by value

  // The one node that uses a value that is no graph output; -1 otherwise. What fusion may look through.
  std::int32_t sole_user(ValueId id) const;
};

// "Conv 'layer1/conv' (opset 13)": how messages name a node.
std::string describe(const Node& node);

// The graph as text, a node a line, for before/after prints and for tests.
std::string to_text(const Graph& graph);

}  // namespace sluice::engine
