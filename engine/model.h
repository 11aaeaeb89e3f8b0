// What Model and Session are made of.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "ir/graph.h"
#include "sluice/engine.h"

namespace sluice::engine {

// Constant after load, but for `packed`, which is thread safe.
struct ModelImpl {
  Options options;
  Graph graph;  // bound to the registry, through the passes of stage kModel
  std::shared_ptr<Device> device;
  mutable PackedWeights packed;
  std::size_t operators_before = 0;

  // The "pass" `kernels` is off.
  bool reference_kernels() const {
    return std::any_of(options.passes_off.begin(), options.passes_off.end(),
                       [](const std::string& name) { return name == "kernels" || name == "all"; });
  }
  std::vector<PassReport> passes;
};

// A program for one signature: the shapes of all inputs and the values of those that decide shapes.
struct CompiledProgram {
  std::vector<Dims> dims;
  std::vector<std::vector<std::byte>> values;  // empty for inputs that decide no shapes
  std::unique_ptr<Program> program;
  std::vector<PassReport> passes;
  std::vector<Tensor> outputs;
  std::vector<const void*> input_pointers;  // of the run
  std::vector<void*> output_pointers;
};

// The graph of a model for one signature, specialised and through the passes of both stages. Errors: as Session::run.
Result<Graph> specialize_for(const ModelImpl& model, const std::vector<Dims>& dims,
                             const std::vector<std::vector<std::byte>>& values, std::vector<PassReport>& passes);

}  // namespace sluice::engine
