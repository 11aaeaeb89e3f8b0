// Pipelines: stages that declare what they read and write become one CUDA graph.
//
// A pipeline means what its stages mean when they run one after another in the order in which they were added. Which of
// them may run at the same time follows from the byte ranges they declare: a stage waits for the last writer of what it
// reads, and for the last writer and its readers of what it writes. Temporaries share memory where they cannot be alive
// together in any order that these dependencies allow.
//
// It is built once and launched many times. What changes between launches (arguments, shapes, addresses, sizes) is
// written into the graph in place; only when the dependencies change is a graph made anew, and the latest few are kept.
// Where a stage cannot be captured the same order runs on streams, and why() says so.
//
// The driver is the one that the process uses: the shim under `sluice run`, the emulator where SLUICE_DRIVER names it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "sluice/base/status.h"
#include "sluice/memory.h"

namespace sluice::graph {

enum class Buffer : std::uint32_t {};
enum class Stage : std::uint32_t {};

inline constexpr std::uint64_t kToEnd = ~std::uint64_t{0};  // from the offset to the buffer's end, whatever its size

enum class Mode : std::uint8_t { kRead, kWrite, kReadWrite };

// A stage's access to bytes [offset, offset + bytes) of a buffer. kWrite means that no old content is used.
struct Access {
  Buffer buffer;
  Mode mode;
  std::uint64_t offset = 0;
  std::uint64_t bytes = kToEnd;
};
inline Access reads(Buffer b, std::uint64_t offset = 0, std::uint64_t bytes = kToEnd) {
  return {b, Mode::kRead, offset, bytes};
}
inline Access writes(Buffer b, std::uint64_t offset = 0, std::uint64_t bytes = kToEnd) {
  return {b, Mode::kWrite, offset, bytes};
}
inline Access updates(Buffer b, std::uint64_t offset = 0, std::uint64_t bytes = kToEnd) {
  return {b, Mode::kReadWrite, offset, bytes};
}

// One argument of a kernel: a value of at most 32 bytes, or the address of a buffer plus an offset in bytes.
class Argument {
 public:
  static constexpr std::size_t kBytes = 32;
  template <class T, class = std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_same_v<T, Buffer>>>
  Argument(const T& value) {  // NOLINT(google-explicit-constructor)
    static_assert(sizeof(T) <= kBytes, "pass larger structures in a buffer");
    __builtin_memcpy(bytes, &value, sizeof(T));
  }
  Argument(Buffer b, std::uint64_t offset = 0) : is_buffer(true), buffer(b) {  // NOLINT(google-explicit-constructor)
    __builtin_memcpy(bytes, &offset, sizeof offset);
  }
  alignas(16) std::byte bytes[kBytes] = {};
  bool is_buffer = false;
  Buffer buffer{};
};

struct Kernel {
  CUfunction function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<Argument> arguments;
};

// Where the pipeline's buffers lie; for stages that are code.
class Addresses {
 public:
  virtual CUdeviceptr of(Buffer buffer) const = 0;
  template <class T>
  T* pointer(Buffer buffer) const {
    return reinterpret_cast<T*>(of(buffer));
  }

 protected:
  ~Addresses() = default;
};
// Submits work to the stream and returns; it must not synchronise nor allocate. Run while the stream is captured.
using StageCode = std::function<Status(CUstream, const Addresses&)>;
// Runs on a thread of the driver's and must make no call to the driver.
using HostFunction = std::function<void(const Addresses&)>;

enum class Priority : std::uint8_t {
  kDerived,  // high on the longest chain of stages, else normal
  kLow,      // preprocessing for a later launch, say
  kNormal,
  kHigh,
};

struct Options {
  memory::Pool* pool = nullptr;  // for temporaries, must outlive the pipeline; null: the driver's cuMemAlloc
  std::size_t kept_graphs = 4;   // instantiated graphs, at least 1: the cap of what is kept for other dependencies
  bool use_graphs = true;        // false: always on streams
};

struct Stats {
  std::size_t stages = 0;
  std::size_t edges = 0;                     // after what follows from others was left out
  std::uint64_t temporaries_bytes = 0;       // of all temporaries, as if none shared
  std::uint64_t temporaries_peak_bytes = 0;  // what they take
  std::uint64_t instantiations = 0;
  std::uint64_t updates = 0;  // nodes whose parameters were written into an instantiated graph
  std::uint64_t launches = 0;
};

// What measure() saw. All times are medians, in microseconds of the calling thread until the work is done.
struct Measured {
  double graph_us = 0;    // a launch of the graph
  double stream_us = 0;   // the same order on streams
  double build_us = 0;    // making and instantiating the graph
  double break_even = 0;  // launches after which the graph has paid for itself; 0 when it never does
};

// What check() found: a stage that touches what it did not declare, and the stage it therefore races with, if any.
struct Finding {
  std::string stage;
  std::string other;  // "" when every other user of the bytes is ordered before or after the stage
  std::string buffer;
  bool is_write = false;
  std::int64_t offset =
      0;  // of the first byte that differed; below 0 or behind the end where it lies outside the buffer
  std::string to_text() const;
};

// Not thread safe. Belongs to the context that is current in create(), which must outlive it and be current in all
// calls. An error in a declaration is kept and returned by build(); each names the stage.
class Pipeline {
 public:
  // Errors: kFailedPrecondition without a context, kUnavailable without a driver, kInvalidArgument for kept_graphs 0.
  static Result<std::unique_ptr<Pipeline>> create(const Options& options = {});
  // Waits for its launches.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Memory of the caller's, of the device or page-locked; constant: no stage may write it.
  Buffer add_buffer(std::string name, CUdeviceptr address, std::uint64_t bytes, bool constant = false);
  // Memory that only the stages of one launch use. Its content is undefined before the first write.
  Buffer add_temporary(std::string name, std::uint64_t bytes);

  Stage add_kernel(std::string name, Kernel kernel, std::vector<Access> accesses);
  // Ranges follow from the parameters.
  Stage add_copy(std::string name, Buffer to, Buffer from, std::uint64_t bytes, std::uint64_t to_offset = 0,
                 std::uint64_t from_offset = 0);
  Stage add_memset(std::string name, Buffer to, std::uint8_t value, std::uint64_t offset = 0,
                   std::uint64_t bytes = kToEnd);
  Stage add_host(std::string name, HostFunction function, std::vector<Access> accesses);
  // Captured in thread-local mode on a stream of the pipeline's, and again when an address or a size has changed.
  // Workspaces are buffers like others, declared with updates().
  Stage add_code(std::string name, StageCode code, std::vector<Access> accesses);

  // `stage` runs after `earlier`, which may have been added later.
  void after(Stage stage, Stage earlier);
  void set_priority(Stage stage, Priority priority);
  // How long the stage takes compared with others, for Priority::kDerived; 1 unless set.
  void set_cost(Stage stage, double cost);

  // Checks everything, derives the dependencies, places the temporaries and instantiates the graph. launch() does it
  // where it was not called. Errors: kInvalidArgument for a declaration, kFailedPrecondition for a cycle, for memory
  // that was freed, and for another device's; kResourceExhausted for memory; kInternal for what the driver refuses.
  Status build();
  // The declarations alone: checks, dependencies, places of temporaries. What build() does first.
  Status plan();

  // Changes for the launches from now on. Those of an address that a host function is given wait for the launches so
  // far.
  Status set_kernel(Stage stage, Kernel kernel);
  Status set_accesses(Stage stage, std::vector<Access> accesses);
  Status set_copy_bytes(Stage stage, std::uint64_t bytes);
  Status set_buffer(Buffer buffer, CUdeviceptr address, std::uint64_t bytes);
  Status resize(Buffer temporary, std::uint64_t bytes);
  // The caller is about to free it. A launch fails until set_buffer() names another.
  Status release(Buffer buffer);

  // Submits one run behind the work of `stream`. Launches of one pipeline run one after another. Nothing is submitted
  // when it fails: as build(), and kInvalidArgument for a stream of another context.
  Status launch(CUstream stream);

  // Why launches run on streams and not as a graph; "" when they run as a graph, or before build().
  const std::string& why() const;
  const Stats& stats() const;

  // Runs the stages one after another on copies of the buffers (what they hold is left alone), each several times with
  // everything that it did not declare poisoned, and reports what it touched nevertheless. Memory that is no buffer of
  // the pipeline is not seen, nor is a stage whose result does not depend on what it read. Waits for the device.
  // Errors: as build(); kResourceExhausted without memory for the copies.
  Result<std::vector<Finding>> check();

  // The dependencies in the DOT language.
  Result<std::string> to_dot();

  // Runs the pipeline `repeats` times each way, interleaved. The stages do what they do: only where a repeat is
  // harmless. Errors: as launch(); kFailedPrecondition where there is no graph.
  Result<Measured> measure(CUstream stream, int repeats = 20);

 private:
  class Impl;
  friend class Checker;
  explicit Pipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::graph
