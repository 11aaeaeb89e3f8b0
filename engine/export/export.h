// A graph as an ONNX file.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace sluice::engine {

struct ExportOptions {
  bool external_data = false;
  std::uint64_t inline_bytes = 1ull << 30;  // of weights; more go to external data anyhow, as protobuf ends at 2 GiB
};

struct ExportResult {
  std::uint64_t file_bytes = 0;  // external data included
  std::string external_data;     // the name of its file, beside the model; empty if there is none
};

// Writes a graph of standard operators. Names of inputs and outputs stay; where two other values have one name, one
// gets another. The files appear whole or not at all. Errors: kUnimplemented (nodes that passes made, control flow),
// kPermissionDenied, kNotFound, kResourceExhausted (no space).
Result<ExportResult> export_onnx(const Graph& graph, const std::string& path, const ExportOptions& options);

}  // namespace sluice::engine
