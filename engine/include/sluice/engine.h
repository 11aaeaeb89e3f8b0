// Runs ONNX models: load a file once, then make a session for each caller that runs it.
//
//   auto model = engine::Model::load("model.onnx");
//   auto session = engine::Session::create(*model);
//   (*session)->set_input("x", engine::DType::kFloat, {1, 3, 224, 224}, pixels);
//   (*session)->run();
//   auto y = (*session)->output("y");
//
// Supported: ONNX operator sets 7 to 17, older ones where set 7 changed nothing, dense tensors. What is not supported
// is refused when the model is loaded or, where it depends on shapes, at the first run with such shapes; nothing is
// ignored.
//
// Thread safety: a Model may be used by any number of threads; a Session by one thread at a time. Sessions of one model
// share its weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::engine {

// Element types; the values are those of ONNX's TensorProto.DataType.
enum class DType : std::uint8_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,  // not supported; named so that it can be refused
  kBool = 9,    // one byte, 0 or 1
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,   // not supported
  kComplex128 = 15,  // not supported
  kBFloat16 = 16,
};

// Bytes of one element; 0 for types that are not supported.
std::size_t dtype_bytes(DType dtype);
// As ONNX spells it: "float", "int64", "float16". Never null.
const char* dtype_name(DType dtype);

using Dims = std::vector<std::int64_t>;

// Number of elements; 1 for a scalar. REQUIRES: every dimension >= 0 and the product fits, as it does in every tensor
// that the engine made.
std::int64_t element_count(const Dims& dims);

// What a model says of one of its inputs or outputs.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kUndefined;
  bool has_rank = false;             // false: the model does not say how many dimensions there are
  Dims dims;                         // -1: not fixed by the model
  std::vector<std::string> symbols;  // a dimension's name, such as "N"; empty where it is a number or has no name
  bool decides_shapes = false;       // an input whose values, not only its shape, are part of what is compiled
};

// A tensor that somebody else owns. `data` is dense and in row-major order.
struct TensorView {
  DType dtype = DType::kUndefined;
  std::span<const std::int64_t> dims;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// The elements of any supported type as numbers.
std::vector<double> to_doubles(const TensorView& tensor);

// One step of a run, for profiles and comparisons: an operator, or several that were fused. Holds until the function
// that it is given to returns.
struct StepView {
  struct Result {
    std::string_view name;  // the value's in the model; "" where `tensor` has no data
    TensorView tensor;      // no data where the device keeps it in a layout of its own
  };
  std::size_t index = 0;  // of `count` steps
  std::size_t count = 0;
  std::string_view name;            // of the node; of the first one where several were fused
  std::string_view op;              // "Conv+Relu" where fused
  std::string_view implementation;  // of the kernel: "reference", "avx2"
  std::uint64_t ns = 0;             // what it took
  std::span<const Result> results;
};

enum class Precision : std::uint8_t { kFp32, kFp16 };

// Bounds of what a model file may ask for before it is refused (kResourceExhausted).
struct Limits {
  std::uint64_t file_bytes = 2ull << 30;         // of the model file: what protobuf can address
  std::uint64_t structure_bytes = 256ull << 20;  // of the file without its weights
  std::uint64_t external_bytes = 16ull << 30;    // of all external data together
  std::uint64_t tensor_bytes = 8ull << 30;       // of one tensor, at load or at run time
  std::uint64_t memory_bytes = 32ull << 30;      // of all tensors that a compilation makes
  std::uint32_t elements = 2'000'000;            // messages and strings in the file
  std::uint32_t nodes = 200'000;
  std::uint32_t tensors = 400'000;
  std::uint32_t depth = 32;                       // of messages within messages, half of it for graphs within nodes
  std::uint32_t shape_input_elements = 1u << 16;  // of an input that decides shapes
};

struct Options {
  std::string device = "cpu";
  Precision precision = Precision::kFp32;
  int threads = 0;                      // 0: one a physical core
  std::vector<std::string> passes_off;  // names as pass_names() lists them; "all" for the unfused reference program
  std::size_t cached_programs = 8;      // a session: compiled programs kept, one for each set of input shapes
  bool print_passes = false;            // print the graph to stderr before and after each pass that changed it
  // With kFp16, the share of all weights that may stay FP32. It goes to the smallest ones, where FP16 saves the least:
  // what FP16 costs in accuracy is the rounding of weights, and each layer adds about the same.
  double fp32_weights = 0.1;
  Limits limits;
};

// The optimisation passes, in the order they run.
std::vector<std::string_view> pass_names();

// What a pass did to a graph.
struct PassReport {
  std::string_view name;
  std::size_t changes = 0;  // as the pass counts them: fusions, nodes removed
  std::size_t nodes_before = 0;
  std::size_t nodes_after = 0;
  std::uint64_t constant_bytes_before = 0;  // of weights and other constants
  std::uint64_t constant_bytes_after = 0;
};

struct ModelImpl;    // private
struct SessionImpl;  // private

class Model {
 public:
  // Reads, checks and optimises a file. Errors: kNotFound, kPermissionDenied (the file, or external data that leaves
  // the model's directory), kInvalidArgument (damaged, or wrong options), kUnimplemented (an operator, type or
  // attribute that the engine does not support; the message names it), kResourceExhausted (limits), kUnavailable (no
  // such device).
  static Result<std::shared_ptr<Model>> load(const std::string& path, const Options& options = {});

  Model();
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // In the file's order; inputs that have an initializer are constants, not inputs.
  const std::vector<TensorSpec>& inputs() const;
  const std::vector<TensorSpec>& outputs() const;
  const Options& options() const;
  int threads() const;                   // of one run, the caller's included
  std::size_t operators_before() const;  // nodes in the file, Constant nodes not counted
  // The passes that ran at load, in their order; Session::passes() has those that run for given shapes.
  const std::vector<PassReport>& passes() const;

 private:
  friend class Session;
  std::unique_ptr<ModelImpl> impl_;
};

class Session {
 public:
  // Errors: none today but of memory; a program is compiled at the first run with its shapes.
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<Model> model);

  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Binds an input. `data` (dense, row-major, element_count(dims) elements) is the caller's and must stay until the
  // last run() that uses it; it is not copied, except where the input decides shapes. Errors: kNotFound (no such
  // input), kInvalidArgument (type or shape that the model does not take).
  Status set_input(std::string_view name, DType dtype, std::span<const std::int64_t> dims, const void* data);
  Status set_input(std::string_view name, DType dtype, const Dims& dims, const void* data) {
    return set_input(name, dtype, std::span<const std::int64_t>(dims), data);
  }

  // Lets runs write an output to the caller's memory: `capacity` bytes at `data`, aligned for the element type, valid
  // until bound anew; nullptr undoes it. Errors: kNotFound (no such output), kInvalidArgument (alignment). A run whose
  // output does not fit fails with kInvalidArgument.
  Status bind_output(std::string_view name, void* data, std::size_t capacity);

  // Compiles if these shapes are new. Allocates nothing when they are not. Errors: kFailedPrecondition (an input is not
  // bound), kUnimplemented and kInvalidArgument (from compiling, or values that an operator refuses, such as an index
  // out of range), kResourceExhausted.
  Status run();

  // The same, and tells `observer` of each step when it is done. May allocate.
  Status run(const std::function<void(const StepView&)>& observer);

  // What the last run() computed. The memory is the session's, or what bind_output named, and valid until the next
  // run(). Errors: kNotFound,
  // kFailedPrecondition (nothing has run).
  Result<TensorView> output(std::string_view name) const;
  Result<TensorView> output(std::size_t index) const;

  // Of the program that ran last; 0 before.
  std::size_t operators_after() const;
  std::size_t arena_bytes() const;
  std::vector<PassReport> passes() const;

 private:
  std::unique_ptr<SessionImpl> impl_;
};

// ---- Writing models ----

struct OptimizeOptions {
  Precision precision = Precision::kFp32;
  double fp32_weights = 0.1;                 // as Options::fp32_weights
  std::vector<std::string> passes_off = {};  // as Options::passes_off
  // Dimensions of inputs that become numbers, by the names that the model gives them: {{"N", 8}}.
  std::vector<std::pair<std::string, std::int64_t>> dims = {};
  bool external_data = false;  // weights into a file of their own, beside the model; always if they exceed 1 GiB
  bool print_passes = false;
  Limits limits = {};
};

struct OptimizeReport {
  std::vector<PassReport> passes;
  std::size_t operators_before = 0;  // Constant nodes not counted
  std::size_t operators_after = 0;
  std::uint64_t bytes_before = 0;  // of the weights and constants
  std::uint64_t bytes_after = 0;
  std::uint64_t file_bytes = 0;  // written, external data included
  std::string external_data;     // the name of its file, which lies beside the model; empty if there is none
  int opset = 0;
  // With kFp16: nodes that compute in half precision, and the operators that stay in FP32 with the number of nodes.
  std::size_t fp16_operators = 0;
  std::vector<std::pair<std::string, std::size_t>> fp32_operators;
};

// Reads a model and writes what the passes at load make of it as standard ONNX, for any runtime: the same opset, names
// and types of inputs and outputs. Symbolic dimensions stay, unless `dims` fixes them. `out` appears whole or not at
// all. Errors: as Model::load, kInvalidArgument (`dims` names no dimension of the model), kPermissionDenied and
// kNotFound (`out` cannot be written).
Result<OptimizeReport> optimize(const std::string& path, const std::string& out, const OptimizeOptions& options = {});

}  // namespace sluice::engine
