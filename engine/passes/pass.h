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
};

struct Pass {
  // When it runs: on the model, once, where only the shapes of constants are known; or on each program, where all are.
  enum class Stage { kModel, kProgram };

  const char* name = "";
  const char* what = "";  // one line, for help
  Stage stage = Stage::kModel;
  // Returns how often it changed the graph. Nodes it makes must have gone through bind_schema, and at stage kProgram
  // their results must have shapes.
  Result<std::size_t> (*run)(Graph& graph, const PassContext& context) = nullptr;
};

// In the order of running.
const std::vector<Pass>& passes();

// Runs those of a stage that are not off. Errors: kInvalidArgument (a name in `off` that no pass has), a pass's own.
Status run_passes(Graph& graph, Pass::Stage stage, const PassContext& context, const std::vector<std::string>& off,
                  bool print);

}  // namespace sluice::engine
