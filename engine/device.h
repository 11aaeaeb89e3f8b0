// What a device must offer: it compiles a graph whose shapes are all known into a program, and runs it. One suite
// (tests/conformance) runs against every device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "operators/packed_weights.h"
#include "operators/schema.h"

namespace sluice::engine {

// What one step of a program is and what it took, for profiles.
struct StepInfo {
  std::string name;            // of the node; of the first one where several were fused
  std::string op;              // "Conv+Relu" where fused
  std::string implementation;  // "reference", "avx2"
  std::vector<TensorType> outputs;
  // Values' names, as many as `outputs`; "" for a result that does not lie dense and row-major (a blocked layout).
  std::vector<std::string> output_names;
};

struct ProgramInfo {
  std::vector<StepInfo> steps;
  std::size_t arena_bytes = 0;     // memory of intermediate results
  std::size_t constant_bytes = 0;  // constants that this program holds, packed ones not counted
};

// Told of each step when it is done.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // `outputs`: the node's, those left out among them not present(); their data holds only until this returns.
  virtual void done(std::size_t step, std::uint64_t ns, std::span<const TensorRef> outputs) = 0;
};

// Belongs to one session; used by one thread at a time.
class Program {
 public:
  virtual ~Program() = default;
  const ProgramInfo& info() const { return info_; }

  // One pointer a graph input (nullptr for those that are constants by now) and a graph output, in the graph's order;
  // dense, aligned to the element type, in memory of the host. Returns when the outputs are written. Allocates nothing.
  // `observer` may be nullptr.
  virtual Status run(std::span<const void* const> inputs, std::span<void* const> outputs, StepObserver* observer) = 0;

 protected:
  ProgramInfo info_;
};

// Thread safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual int threads() const = 0;  // of the host that a run uses, the caller's included
  // `graph`: specialised and through the passes of both stages. `packed`: the model's. `reference`: only the operators'
  // reference kernels, none of the device's own.
  virtual Result<std::unique_ptr<Program>> compile(const Graph& graph, PackedWeights& packed,
                                                   bool reference = false) = 0;
};

// Errors: kUnavailable (no such device here), kInvalidArgument (threads).
Result<std::shared_ptr<Device>> open_device(std::string_view name, int threads);

}  // namespace sluice::engine
