// All operators the engine knows. Built at first use, constant afterwards; thread safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operators/schema.h"

namespace sluice::engine {

class Registry {
 public:
  static const Registry& get();

  // The schema of an operator in an operator set, or nullptr.
  const Schema* find(std::string_view domain, std::string_view op, int opset) const;
  // Whether some operator set has it: for messages.
  bool knows(std::string_view domain, std::string_view op) const;
  const std::map<std::string, std::vector<Schema>>& schemas() const { return schemas_; }

  // For the families. A definition that contradicts itself stops the program: it is an error of the build.
  void add(Operator definition);

 private:
  std::map<std::string, std::vector<Schema>> schemas_;  // by domain.op
};

// Finds each node's schema and checks arity, attributes and, as far as they follow from inputs and attributes, element
// types, which it writes into the graph's values. Errors: kUnimplemented, kInvalidArgument.
Status bind_schemas(Graph& graph);

// Likewise for one node, such as one that a pass made.
Status bind_schema(Graph& graph, Node& node);

}  // namespace sluice::engine
