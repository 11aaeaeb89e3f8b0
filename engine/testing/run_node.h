// Runs one node with the reference kernel, for tests of operators.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compile/specialize.h"
#include "operators/registry.h"

namespace sluice::engine::test {

template <class T>
Tensor tensor(DType dtype, Dims dims, const std::vector<T>& values) {
  auto made = Tensor::allocate(dtype, dims);
  EXPECT_EQ(static_cast<std::size_t>(made->elements()), values.size());
  std::copy(values.begin(), values.end(), made->mutable_as<T>());
  return *made;
}
inline Tensor floats(Dims dims, const std::vector<float>& values) { return tensor(DType::kFloat, dims, values); }
inline Tensor ints(const std::vector<std::int64_t>& values) {
  return tensor(DType::kInt64, {static_cast<std::int64_t>(values.size())}, values);
}
inline Tensor ints(Dims dims, const std::vector<std::int64_t>& values) { return tensor(DType::kInt64, dims, values); }

struct NodeRun {
  Status status;
  std::vector<Tensor> outputs;

  Dims dims(std::size_t i = 0) const { return outputs.at(i).dims(); }
  std::vector<double> values(std::size_t i = 0) const {
    std::vector<double> result;
    for (std::int64_t k = 0; k < outputs.at(i).elements(); ++k) {
      result.push_back(outputs.at(i).as_double(k));
    }
    return result;
  }
};

// A tensor without a type is an input that is left out.
inline NodeRun run_node(const char* op, int opset, const std::vector<Tensor>& inputs,
                        std::vector<Attribute> attributes = {}, int outputs = 1) {
  Graph graph;
  Node node;
  node.op = op;
  node.name = "n";
  node.opset = opset;
  node.attributes = std::move(attributes);
  for (const Tensor& input : inputs) {
    const bool there = input.dtype() != DType::kUndefined;
    node.inputs.push_back(there ? graph.add_constant("i" + std::to_string(node.inputs.size()), input) : kNoValue);
  }
  for (int i = 0; i < outputs; ++i) {
    node.outputs.push_back(graph.add_value("o" + std::to_string(i)));
    graph.outputs.push_back(node.outputs.back());
  }
  graph.nodes.push_back(node);
  NodeRun result;
  result.status = bind_schemas(graph);
  if (result.status.ok()) {
    result.status = specialize(graph, Limits{}.memory_bytes);
  }
  for (const ValueId id : graph.outputs) {
    if (result.status.ok()) {
      result.outputs.push_back(*graph.value(id).constant);
    }
  }
  return result;
}

}  // namespace sluice::engine::test
