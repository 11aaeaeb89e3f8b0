// A compiled graph on the CPU: steps in order, one arena, pointers fixed when it is compiled.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cpu/thread_pool.h"
#include "device.h"
#include "operators/schema.h"

namespace sluice::engine::cpu {

class CpuProgram final : public Program {
 public:
  static Result<std::unique_ptr<Program>> compile(const Graph& graph, PackedWeights& packed,
                                                  std::shared_ptr<ThreadPool> pool, bool reference);

  Status run(std::span<const void* const> inputs, std::span<void* const> outputs, StepObserver* observer) override;

 private:
  struct Step {
    std::shared_ptr<Kernel> kernel;
    std::vector<TensorRef> inputs, outputs;
    std::byte* scratch = nullptr;  // in the arena
  };
  // A pointer in a step that is the caller's and changes from run to run.
  struct Patch {
    std::size_t step;
    bool is_output;
    std::size_t index;     // in the step's inputs or outputs
    bool from_output;      // graph output or graph input
    std::size_t argument;  // which one
  };
  enum class Source : std::uint8_t { kConstant, kInput, kOutput };
  struct Copy {  // a graph output that no step writes
    std::size_t output;
    Source source;
    std::size_t index;          // which input or output
    const std::byte* constant;  // of kConstant
    std::size_t bytes;
  };
  friend class Builder;

  std::shared_ptr<ThreadPool> pool_;
  std::vector<Dims> dims_;  // what TensorRef::dims point into
  std::vector<Tensor> constants_;
  std::vector<Step> steps_;
  std::vector<Patch> patches_;
  std::vector<Copy> copies_;
  std::shared_ptr<std::byte> arena_;
};

}  // namespace sluice::engine::cpu
