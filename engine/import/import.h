// An ONNX file as a graph, within limits. The only part of the engine that knows protobuf.
#pragma once

#include <string>

#include "ir/graph.h"

namespace sluice::engine {

inline constexpr int kOldestOpset = 7;
inline constexpr int kNewestOpset = 17;

// Reads a file. Weights stay in the mapped file, which the tensors keep alive. Nodes are not checked against the
// registry yet (bind_schemas). Errors: as Model::load.
Result<Graph> import_onnx(const std::string& path, const Limits& limits);

}  // namespace sluice::engine
