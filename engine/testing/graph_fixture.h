// Builds small graphs, runs one pass on them, and compares what they compute before and after.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "compile/specialize.h"
#include "device.h"
#include "ir/half.h"
#include "operators/registry.h"
#include "passes/pass.h"

namespace sluice::engine::test {

class GraphFixture : public ::testing::Test {
 protected:
  ValueId input(const char* name, Dims dims, DType dtype = DType::kFloat) {
    TensorSpec spec{name, dtype, true, dims, std::vector<std::string>(dims.size()), false};
    const ValueId id = graph_.add_value(name, {dtype, std::move(dims)}, true);
    graph_.inputs.push_back(id);
    graph_.input_specs.push_back(std::move(spec));
    return id;
  }
  ValueId constant(Dims dims, const std::vector<float>& values) {
    auto tensor = Tensor::allocate(DType::kFloat, dims);
    std::copy(values.begin(), values.end(), tensor->mutable_as<float>());
    return graph_.add_constant("c" + std::to_string(graph_.values.size()), std::move(*tensor));
  }
  ValueId scalar(float value) { return constant({}, {value}); }
  ValueId ints(const std::vector<std::int64_t>& values) {
    auto tensor = Tensor::allocate(DType::kInt64, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor->mutable_as<std::int64_t>());
    return graph_.add_constant("c" + std::to_string(graph_.values.size()), std::move(*tensor));
  }
  // Seeded numbers in [low, high).
  ValueId weights(Dims dims, float low = -1, float high = 1) {
    std::vector<float> values(static_cast<std::size_t>(element_count(dims)));
    std::uniform_real_distribution<float> uniform(low, high);
    for (float& value : values) {
      value = uniform(random_);
    }
    return constant(std::move(dims), values);
  }
  ValueId node(const char* op, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {}, int outputs = 1) {
    Node made;
    made.op = op;
    made.name = std::string("n") + std::to_string(graph_.nodes.size());
    made.opset = opset_;
    made.inputs = std::move(inputs);
    made.attributes = std::move(attributes);
    for (int i = 0; i < outputs; ++i) {
      made.outputs.push_back(graph_.add_value(std::string(op) + std::to_string(graph_.values.size())));
    }
    graph_.nodes.push_back(std::move(made));
    return graph_.nodes.back().outputs[0];
  }
  void output(ValueId id) {
    graph_.outputs.push_back(id);
    graph_.output_specs.push_back({graph_.value(id).name, DType::kFloat, false, {}, {}, false});
  }
  static Attribute ints_attribute(const char* name, std::vector<std::int64_t> values) {
    return {name, std::move(values)};
  }

  // Binds, infers shapes, runs a pass, and expects the same outputs up to `tolerance`, relative to the largest element,
  // and the same names of outputs. Returns the pass's count of changes.
  std::size_t apply(std::string_view pass_name, double tolerance = 1e-5, const PassContext& context = {}) {
    Status status = bind_schemas(graph_);
    if (!status.ok()) {
      ADD_FAILURE() << status.message();
      return 0;
    }
    const Graph before = graph_;
    for (const Pass& pass : passes()) {
      if (pass.name == pass_name) {
        if (pass.stage != Pass::Stage::kModel) {
          status = specialize(graph_, 1u << 30);
          EXPECT_TRUE(status.ok()) << status.message();
        }
        auto changes = pass.run(graph_, context);
        EXPECT_TRUE(changes.ok()) << changes.status().message();
        expect_same(before, graph_, tolerance);
        return changes.ok() ? *changes : 0;
      }
    }
    ADD_FAILURE() << "there is no pass " << pass_name;
    return 0;
  }

  // How many nodes of an operator there are, in any domain.
  std::size_t count(std::string_view op) const {
    std::size_t found = 0;
    for (const Node& candidate : graph_.nodes) {
      found += candidate.op == op ? 1u : 0u;
    }
    return found;
  }
  // The first one. REQUIRES: there is one.
  const Node& first(std::string_view op) const {
    for (const Node& candidate : graph_.nodes) {
      if (candidate.op == op) {
        return candidate;
      }
    }
    ADD_FAILURE() << "there is no " << op << " in\n" << to_text(graph_);
    return graph_.nodes.front();
  }

  // All outputs as doubles, of a run with seeded inputs, by the reference kernels or the device's own.
  static std::vector<std::vector<double>> outputs_of(Graph graph, bool reference = false) {
    Status status = specialize(graph, 1u << 30);
    EXPECT_TRUE(status.ok()) << status.message();
    auto device = open_device("cpu", 1);
    PackedWeights packed;
    auto program = (*device)->compile(graph, packed, reference);
    EXPECT_TRUE(program.ok()) << program.status().message() << "\n" << to_text(graph);
    if (!program.ok()) {
      return {};
    }
    std::vector<Tensor> inputs, outputs;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (const ValueId id : graph.inputs) {
      const TensorType& type = graph.value(id).type;
      inputs.push_back(*Tensor::allocate(type.dtype, type.dims));
      for (std::int64_t i = 0; i < inputs.back().elements(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (type.dtype == DType::kFloat) {
          inputs.back().mutable_as<float>()[at] = uniform(random);
        } else if (type.dtype == DType::kFloat16) {
          inputs.back().mutable_as<std::uint16_t>()[at] = float_to_half(uniform(random));
        } else {
          inputs.back().mutable_as<std::int64_t>()[at] = i % 2;
        }
      }
      in.push_back(inputs.back().data());
    }
    for (const ValueId id : graph.outputs) {
      outputs.push_back(*Tensor::allocate(graph.value(id).type.dtype, graph.value(id).type.dims));
      out.push_back(outputs.back().mutable_data());
    }
    status = (*program)->run(in, out, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<std::vector<double>> values;
    for (const Tensor& tensor : outputs) {
      values.emplace_back();
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        values.back().push_back(tensor.as_double(i));
      }
    }
    return values;
  }

  static void expect_same(const Graph& before, const Graph& after, double tolerance) {
    ASSERT_EQ(before.outputs.size(), after.outputs.size());
    for (std::size_t i = 0; i < before.outputs.size(); ++i) {
      EXPECT_EQ(before.value(before.outputs[i]).name, after.value(after.outputs[i]).name);
      EXPECT_EQ(before.value(before.outputs[i]).type.dtype, after.value(after.outputs[i]).type.dtype);
    }
    const auto expected = outputs_of(before, true), actual = outputs_of(after);
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t o = 0; o < expected.size(); ++o) {
      ASSERT_EQ(expected[o].size(), actual[o].size()) << to_text(after);
      double largest = 1e-30;
      for (const double value : expected[o]) {
        largest = std::max(largest, std::abs(value));
      }
      for (std::size_t i = 0; i < expected[o].size(); ++i) {
        ASSERT_NEAR(expected[o][i], actual[o][i], tolerance * largest) << "output " << o << ", element " << i << "\n"
                                                                       << to_text(after);
      }
    }
  }

  Graph graph_;
  int opset_ = 13;
  std::mt19937 random_{1};
};

}  // namespace sluice::engine::test
