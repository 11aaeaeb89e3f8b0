// Rewrites of the graph that keep what it computes. A pass is a file with a function `make_<name>`, named in
// passes/CMakeLists.txt in the order of running.
//
// A pass never changes a graph output's name, order, type or bytes (beyond rounding), and never removes a value that
// another node still uses; Uses::sole_user says what a fusion may look through.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace sluice::engine {

struct PassContext {
  Precision precision = Precision::kFp32;
  std::string_view device;
  double fp32_weights = 0;  // Options::fp32_weights
};

struct Pass {
  // When it runs: on the model, once, where only the shapes of constants are known; on each program, where all are; or
  // on both. What the first leaves is standard ONNX, which optimize() writes: only the second may make fused nodes.
  enum class Stage { kModel, kProgram, kBoth };

  const char* name = "";
  const char* what = "";  // one line, for help
  Stage stage = Stage::kModel;
  // Returns how often it changed the graph. Nodes it makes must have gone through bind_schema, and at stage kProgram
  // their results must have shapes.
  Result<std::size_t> (*run)(Graph& graph, const PassContext& context) = nullptr;
};

// In the order of running.
const std::vector<Pass>& passes();

// Bytes of the graph's constants; what several share counts once.
std::uint64_t constant_bytes(const Graph& graph);

// Runs those of a stage (kModel or kProgram) that are not off, and appends what each did to `reports`, unless that is
// nullptr. Errors: kInvalidArgument (a name in `off` that no pass has), a pass's own.
Status run_passes(Graph& graph, Pass::Stage stage, const PassContext& context, const std::vector<std::string>& off,
                  bool print, std::vector<PassReport>* reports = nullptr);

}  // namespace sluice::engine
