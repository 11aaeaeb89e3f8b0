// What the engine knows of an operator: which nodes it accepts, the shapes of the results, and the reference kernel.
//
// A node that its schema does not describe to the letter (another attribute, another type, one input more) is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace sluice::engine {

// A set of element types, a bit for each.
using TypeSet = std::uint32_t;
constexpr TypeSet types_of(std::initializer_list<DType> types) {
  TypeSet set = 0;
  for (const DType dtype : types) {
    set |= 1u << static_cast<unsigned>(dtype);
  }
  return set;
}
constexpr bool contains(TypeSet set, DType dtype) { return (set >> static_cast<unsigned>(dtype) & 1u) != 0; }

inline constexpr TypeSet kFloat32 = types_of({DType::kFloat});
inline constexpr TypeSet kFloats = types_of({DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16});
inline constexpr TypeSet kSigned = types_of({DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64});
inline constexpr TypeSet kUnsigned = types_of({DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64});
inline constexpr TypeSet kIntegers = kSigned | kUnsigned;
inline constexpr TypeSet kNumbers = kFloats | kIntegers;
inline constexpr TypeSet kBools = types_of({DType::kBool});
inline constexpr TypeSet kAllTypes = kNumbers | kBools;
inline constexpr TypeSet kIndices = types_of({DType::kInt32, DType::kInt64});
inline constexpr TypeSet kInt64s = types_of({DType::kInt64});

// ---- Shapes ----

// What infers the shapes of one node's results. All inputs' shapes are known.
class ShapeContext {
 public:
  ShapeContext(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Node& node() const { return node_; }
  std::size_t input_count() const { return node_.inputs.size(); }
  bool has_input(std::size_t i) const { return node_.has_input(i); }
  // REQUIRES: has_input(i).
  const Dims& dims(std::size_t i) const { return graph_.value(node_.inputs[i]).type.dims; }
  DType dtype(std::size_t i) const { return graph_.value(node_.inputs[i]).type.dtype; }
  std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(dims(i).size()); }
  // What set() has set.
  const Dims& output_dims(std::size_t i) const { return graph_.value(node_.outputs[i]).type.dims; }
  // For the part of a fused node that is an operator of its own; `node` has values of this graph.
  ShapeContext with_node(const Node& node) const { return ShapeContext(graph_, node); }

  // An input that is a constant by now, or nullptr.
  const Tensor* constant(std::size_t i) const;
  // The values of an integer input. Errors: kUnimplemented, if they are not known when the program is compiled.
  Result<std::vector<std::int64_t>> ints(std::size_t i) const;

  // Sets a result's shape; a result that is left out may be set too. Errors: kInvalidArgument, kResourceExhausted (a
  // shape that no tensor can have).
  Status set(std::size_t output, Dims dims);

  // An axis in [-rank, rank) as one in [0, rank). Errors: kInvalidArgument.
  Result<std::int64_t> axis(std::int64_t value, std::int64_t rank) const;

  // An error that names the node. `format` as printf takes it, without the node.
  [[gnu::format(printf, 3, 4)]] Status error(Code code, const char* format, ...) const;

 private:
  Graph& graph_;
  const Node& node_;
};

using InferShapes = Status (*)(ShapeContext&);

// ---- Kernels ----

// A tensor at run time.
struct TensorRef {
  DType dtype = DType::kUndefined;  // kUndefined: an optional one that is left out
  std::int32_t rank = 0;
  const std::int64_t* dims = nullptr;
  void* data = nullptr;

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  template <class T>
  T* out() const {
    return static_cast<T*>(data);
  }
  bool present() const { return dtype != DType::kUndefined; }
};

struct KernelRun {
  std::span<const TensorRef> inputs;
  std::span<const TensorRef> outputs;
  std::byte* scratch = nullptr;  // Kernel::scratch_bytes(), aligned to 64 bytes; its content does not last
};

// A node prepared for one program: types and shapes are fixed. Used by one thread at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Allocates nothing. Errors: what only values can show, such as an index out of range.
  virtual Status run(const KernelRun& run) = 0;
  // Memory that run() needs for itself; it is shared with other kernels of the program.
  virtual std::size_t scratch_bytes() const { return 0; }
  // Whether the first result may lie where this input lies, which is then gone: each of its elements is read before
  // that element of the result is written, and not again.
  virtual bool may_overwrite(std::size_t /*input*/) const { return false; }
};

// Weights in the form that a kernel wants, made once and shared by all programs and sessions of a model. Thread safe.
class PackedWeights;

// What a kernel is prepared from.
class KernelContext {
 public:
  KernelContext(const Graph& graph, const Node& node, PackedWeights* packed, int threads)
      : graph_(graph), node_(node), packed_(packed), threads_(threads) {}

  const Node& node() const { return node_; }
  const TensorType& input(std::size_t i) const { return graph_.value(node_.inputs[i]).type; }
  const TensorType& output(std::size_t i) const { return graph_.value(node_.outputs[i]).type; }
  bool has_input(std::size_t i) const { return node_.has_input(i); }
  bool has_output(std::size_t i) const { return node_.has_output(i); }
  std::size_t input_count() const { return node_.inputs.size(); }
  // An input that is a constant, or nullptr. Its data may be unaligned; KernelRun's never are.
  const Tensor* constant(std::size_t i) const;
  PackedWeights* packed_weights() const { return packed_; }  // nullptr while constants are folded
  int threads() const { return threads_; }
  // For the part of a fused node that is an operator of its own. `node` must outlive the context.
  KernelContext with_node(const Node& node) const { return KernelContext(graph_, node, packed_, threads_); }

  [[gnu::format(printf, 3, 4)]] Status error(Code code, const char* format, ...) const;

  // Constant inputs that the kernel has packed and does not read in run(): the program need not keep them. Call for
  // each.
  void release_input(std::size_t i) { released_.push_back(i); }
  const std::vector<std::size_t>& released_inputs() const { return released_; }

 private:
  const Graph& graph_;
  const Node& node_;
  PackedWeights* packed_;
  int threads_;
  std::vector<std::size_t> released_;
};

// May return nullptr where there is a more general kernel to take (never from a schema's own).
using MakeKernel = Result<std::unique_ptr<Kernel>> (*)(KernelContext&);

// ---- Schemas ----

struct Parameter {
  enum class Kind : std::uint8_t { kRequired, kOptional, kVariadic };
  std::string name;
  std::string type;  // a name in Schema::types
  Kind kind = Kind::kRequired;
};

struct AttributeRule {
  std::string name;
  AttributeKind kind = AttributeKind::kInt;
  bool required = false;
};

struct TypeRule {
  std::string name;
  TypeSet types = 0;
};

// How a family of operators is written down; the strings are parsed once, by Registry::add().
struct Operator {
  const char* op = "";
  int first = 7;  // operator sets this holds for
  int last = 17;
  const char* inputs = "";           // "X:T, min:T?, rest:T*": '?' may be left out, '*' (last only) any number
  const char* outputs = "";          // likewise
  const char* attributes = "";       // "axis:int, to:int!, pads:ints, mode:string": '!' must be there
  std::vector<TypeRule> types = {};  // {{"T", kFloats}}: parameters that share a name share the element type
  // Inputs whose values must be known when a program is compiled. Those of a model on which they depend become part of
  // what is compiled (TensorSpec::decides_shapes).
  std::vector<int> shape_inputs = {};
  InferShapes infer = nullptr;
  MakeKernel kernel = nullptr;
  // Element type of an output whose type name no input has; undefined: the type rule must then have one type only.
  // `first_input`: the type of the first input, undefined if there is none.
  DType (*output_type)(const Node& node, DType first_input) = nullptr;
  // What the load checks beyond kinds: attribute values that the kernel does not honour. Use refuse().
  Status (*check)(const Node& node) = nullptr;
  // The first result is the first input's bytes, with other dims: no work where the device can alias them.
  bool view = false;
  // The results depend on the shapes of the inputs only, never on their values.
  bool shape_only = false;
  // Different at each run (a random number): never folded.
  bool varies = false;
  std::string_view domain = "";
  // Control flow: checks inputs and outputs and sets the outputs' types in place of what the strings above say.
  Status (*bind)(Graph& graph, Node& node) = nullptr;
};

struct Schema {
  Operator definition;
  std::vector<Parameter> inputs;
  std::vector<Parameter> outputs;
  std::vector<AttributeRule> attributes;

  // The parameter that the i-th input or output stands for; nullptr if there are not so many.
  const Parameter* input(std::size_t i) const { return parameter(inputs, i); }
  const Parameter* output(std::size_t i) const { return parameter(outputs, i); }
  TypeSet types(std::string_view name) const;

 private:
  static const Parameter* parameter(const std::vector<Parameter>& list, std::size_t i);
};

// An error of the kind "refused": operator, node name, opset, `what`, and `what_to_do`.
Status refuse(const Node& node, std::string_view what, std::string_view what_to_do);

}  // namespace sluice::engine
