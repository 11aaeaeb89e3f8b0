// A model's graph for given input shapes: all shapes known, everything that follows from them folded.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace sluice::engine {

// For each graph input, whether some operator needs its values to know its result's shape (Operator::shape_inputs).
// REQUIRES: bind_schemas.
std::vector<bool> find_shape_inputs(const Graph& graph);

// Infers the shape of every value, and replaces nodes by constants where all inputs are constants or only shapes
// matter. REQUIRES: bind_schemas; each graph input has a shape; those that decide shapes are constants. `memory_limit`
// bounds all values together. Errors: kUnimplemented (data-dependent shapes), kInvalidArgument, kResourceExhausted.
Status specialize(Graph& graph, std::uint64_t memory_limit);

// Replaces nodes whose inputs are constants, for passes that run before shapes are known. Results larger than
// `size_limit` bytes, unless they are no larger than the inputs, stay unfolded. Returns how many nodes were folded.
Result<std::size_t> fold_constants(Graph& graph, std::uint64_t size_limit);

}  // namespace sluice::engine
