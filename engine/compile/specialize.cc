#include "compile/specialize.h"

#include <algorithm>

#include "compile/branches.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

bool inputs_known(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return id == kNoValue || graph.is_constant(id); });
}

bool inputs_have_shapes(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return id == kNoValue || graph.value(id).has_shape; });
}

Status infer(Graph& graph, const Node& node) {
  ShapeContext context(graph, node);
  if (Status status = node.schema->definition.infer(context); !status.ok()) {
    return status;
  }
  for (const ValueId id : node.outputs) {
    if (id != kNoValue && !graph.value(id).has_shape) {
      return context.error(Code::kInternal, "no shape was inferred for '%.60s'", graph.value(id).name.c_str());
    }
  }
  return {};
}

// Runs the reference kernel once. REQUIRES: inputs_known, unless the kernel reads no values.
Status evaluate(Graph& graph, const Node& node) {
  std::vector<Tensor> keep, results;
  std::vector<TensorRef> inputs, outputs;
  keep.reserve(node.inputs.size());
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) {
      inputs.push_back({});
      continue;
    }
    const Value& value = graph.value(id);
    void* data = nullptr;
    if (value.constant) {
      auto aligned = value.constant->to_aligned();
      if (!aligned.ok()) {
        return aligned.status();
      }
      keep.push_back(std::move(*aligned));
      data = const_cast<std::byte*>(keep.back().data());
    }
    inputs.push_back(
        {value.type.dtype, static_cast<std::int32_t>(value.type.dims.size()), value.type.dims.data(), data});
  }
  results.resize(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) {
      outputs.push_back({});
      continue;
    }
    const TensorType& type = graph.value(node.outputs[i]).type;
    auto tensor = Tensor::allocate(type.dtype, type.dims);
    if (!tensor.ok()) {
      return tensor.status();
    }
    results[i] = std::move(*tensor);
    outputs.push_back(
        {type.dtype, static_cast<std::int32_t>(type.dims.size()), type.dims.data(), results[i].mutable_data()});
  }
  KernelContext context(graph, node, nullptr, 1);
  auto kernel = node.schema->definition.kernel(context);
  if (!kernel.ok()) {
    return kernel.status();
  }
  auto scratch = Tensor::allocate(DType::kUint8, {static_cast<std::int64_t>((*kernel)->scratch_bytes())});
  if (!scratch.ok()) {
    return scratch.status();
  }
  if (Status status = (*kernel)->run({inputs, outputs, scratch->mutable_data()}); !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) {
      graph.value(node.outputs[i]).constant = std::move(results[i]);
    }
  }
  return {};
}

bool foldable(const Graph& graph, const Node& node) {
  const Operator& definition = node.schema->definition;
  return definition.kernel != nullptr && !definition.varies && (definition.shape_only || inputs_known(graph, node));
}

void drop_folded(Graph& graph) {
  std::erase_if(graph.nodes, [&](const Node& node) {
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id == kNoValue || graph.is_constant(id); });
  });
}

// What a tensor counts towards the limit of memory. A dimension of zero counts as one: kernels keep an index for each
// place along the other dimensions, and would take them from a hostile file at any length.
std::uint64_t counted_bytes(TensorType type) {
  std::replace(type.dims.begin(), type.dims.end(), std::int64_t{0}, std::int64_t{1});
  const auto bytes = tensor_bytes(type.dtype, type.dims);
  return bytes.ok() ? *bytes : 0;
}

}  // namespace

std::vector<bool> find_shape_inputs(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    for (const int input : node.schema->definition.shape_inputs) {
      if (node.has_input(static_cast<std::size_t>(input))) {
        needed[static_cast<std::size_t>(node.inputs[static_cast<std::size_t>(input)])] = true;
      }
    }
    const bool result_needed = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      return id != kNoValue && needed[static_cast<std::size_t>(id)];
    });
    std::size_t captured = 1;
    for (const char* name : kBranches) {  // what a branch needs to know of the values that it reads
      if (const Graph* branch = node.get_graph(name)) {
        for (const bool decides : find_shape_inputs(*branch)) {
          const auto input = static_cast<std::size_t>(node.inputs[captured++]);
          needed[input] = needed[input] || decides;
        }
      }
    }
    if (result_needed && !node.schema->definition.shape_only) {
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) {
          needed[static_cast<std::size_t>(id)] = true;
        }
      }
    }
  }
  std::vector<bool> result;
  for (const ValueId id : graph.inputs) {
    result.push_back(needed[static_cast<std::size_t>(id)]);
  }
  return result;
}

Status specialize(Graph& graph, std::uint64_t memory_limit) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    while (i < graph.nodes.size() && has_branches(graph.nodes[i])) {
      if (Status status = take_branch(graph, i); !status.ok()) {
        return status;
      }
    }
    if (i == graph.nodes.size()) {
      break;
    }
    const Node& node = graph.nodes[i];
    if (Status status = infer(graph, node); !status.ok()) {
      return status;
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) {
        total += counted_bytes(graph.value(id).type);
      }
    }
    if (total > memory_limit) {
      return refuse(node, "the tensors up to here are over the limit of memory", "use smaller inputs");
    }
    if (foldable(graph, node)) {
      if (Status status = evaluate(graph, node); !status.ok()) {
        return status;
      }
    }
  }
  drop_folded(graph);
  graph.remove_dead();
  return {};
}

Result<std::size_t> fold_constants(Graph& graph, std::uint64_t size_limit) {
  std::size_t folded = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    while (i < graph.nodes.size() && has_branches(graph.nodes[i]) && graph.is_constant(graph.nodes[i].inputs[0])) {
      if (Status status = take_branch(graph, i); !status.ok()) {
        return status;
      }
      ++folded;
    }
    if (i == graph.nodes.size()) {
      break;
    }
    const Node& node = graph.nodes[i];
    // Quantised weights stay as small as they are, and recognisable for who runs the model.
    if (!inputs_have_shapes(graph, node) || !foldable(graph, node) || node.op == "DequantizeLinear") {
      continue;
    }
    if (Status status = infer(graph, node); !status.ok()) {
      return status;
    }
    std::uint64_t before = 0, after = 0;
    for (const ValueId id : node.inputs) {
      before += graph.is_constant(id) ? graph.value(id).constant->bytes() : 0;
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) {
        auto bytes = tensor_bytes(graph.value(id).type.dtype, graph.value(id).type.dims);
        after += bytes.ok() ? *bytes : 0;
      }
    }
    if (after > size_limit && after > before) {
      continue;
    }
    if (Status status = evaluate(graph, node); !status.ok()) {
      return status;
    }
    ++folded;
  }
  drop_folded(graph);
  graph.remove_dead();
  return folded;
}

}  // namespace sluice::engine
