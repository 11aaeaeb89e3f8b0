// Half precision: nodes compute in FP16 and weights are rounded to it, but for islands that stay in FP32. The types of
// the graph's inputs and outputs stay. A node stays in FP32 if
//   - ONNX has no FP16 form of it, or it is no arithmetic on its float inputs (a cast, a quantisation),
//   - it sums over many elements, or its results span more than FP16 does (kSensitive),
//   - a constant that it reads has numbers beyond FP16, or loses more than kMostLoss by rounding, such as an epsilon of
//     1e-12, or is a single number that loses more than kMostLossOfOne; a number beyond FP16, such as a mask of
//     -3.4e38, keeps all in FP32 that it reaches unbounded,
//   - it subtracts from or divides by what such a node computed, or what it computes is only summed up,
//   - it is elementwise or moves elements, and all it reads was computed in FP32,
//   - it multiplies by weights that are among the smallest ones, which make up Options::fp32_weights of all: each
//     product adds about as much error by the rounding of its weights, whatever their number, so FP32 is cheapest
//     there.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "ir/half.h"
#include "operators/registry.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

constexpr double kMostLoss = 0x1p-9;  // relative, of a whole constant; rounding of normal numbers costs 2^-12
// A single number scales or shifts all elements alike: its error adds up where those of many weights average out.
constexpr double kMostLossOfOne = 0x1p-14;
constexpr double kHighest = 65504;

constexpr std::string_view kSensitive[] = {"BatchNormalization",
                                           "Bernoulli",
                                           "CumSum",
                                           "DFT",
                                           "Det",
                                           "Dropout",
                                           "DynamicQuantizeLinear",
                                           "Einsum",
                                           "Exp",
                                           "GRU",
                                           "GlobalLpPool",
                                           "GridSample",
                                           "InstanceNormalization",
                                           "LRN",
                                           "LSTM",
                                           "LayerNormalization",
                                           "Log",
                                           "LogSoftmax",
                                           "LpNormalization",
                                           "LpPool",
                                           "MeanVarianceNormalization",
                                           "NegativeLogLikelihoodLoss",
                                           "NonMaxSuppression",
                                           "Pow",
                                           "RNN",
                                           "Range",
                                           "Reciprocal",
                                           "ReduceL1",
                                           "ReduceL2",
                                           "ReduceLogSum",
                                           "ReduceLogSumExp",
                                           "ReduceMean",
                                           "ReduceProd",
                                           "ReduceSum",
                                           "ReduceSumSquare",
                                           "Resize",
                                           "RoiAlign",
                                           "Softmax",
                                           "SoftmaxCrossEntropyLoss",
                                           "Softplus",
                                           "Sqrt",
                                           "TopK",
                                           "Upsample"};
constexpr std::string_view kSums[] = {"ReduceL1",   "ReduceL2",   "ReduceLogSum", "ReduceLogSumExp",
                                      "ReduceMean", "ReduceProd", "ReduceSum",    "ReduceSumSquare"};
constexpr std::string_view kProducts[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
constexpr std::string_view kBounding[] = {"Clip", "Erf", "HardSigmoid", "Hardmax", "Sigmoid", "Softmax", "Tanh"};

template <std::size_t N>
bool is_one_of(const Node& node, const std::string_view (&ops)[N]) {
  return node.domain.empty() && std::find(std::begin(ops), std::end(ops), node.op) != std::end(ops);
}

bool is_float(const Graph& graph, ValueId id) { return id != kNoValue && graph.value(id).type.dtype == DType::kFloat; }

// What rounding to FP16 does to a constant.
struct Rounding {
  bool overflows = false;
  double loss = 0;
};

Rounding rounding_of(const Tensor& tensor) {
  double lost = 0, whole = 0;
  Rounding result;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.as_double(i);
    if (!std::isfinite(value)) {
      continue;  // an infinity stays one
    }
    result.overflows = result.overflows || std::abs(value) > kHighest;
    const double error = value - static_cast<double>(half_to_float(float_to_half(static_cast<float>(value))));
    lost += error * error;
    whole += value * value;
  }
  result.loss = whole == 0 ? 0 : std::sqrt(lost / whole);
  return result;
}

Result<Tensor> to_half(const Tensor& tensor) {
  auto half = Tensor::allocate(DType::kFloat16, tensor.dims());
  for (std::int64_t i = 0; half.ok() && i < tensor.elements(); ++i) {
    half->mutable_as<std::uint16_t>()[i] = float_to_half(static_cast<float>(tensor.as_double(i)));
  }
  return half;
}

// Decides for each node.
class Plan {
 public:
  Plan(const Graph& graph, double fp32_share)
      : graph_(graph),
        uses_(graph),
        single_(graph.nodes.size(), false),
        made_single_(graph.values.size(), false),
        wide_(graph.values.size(), false) {
    keep_smallest_weights(fp32_share);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      decide(i);
    }
  }

  bool is_half(std::size_t node) const { return !single_[node]; }

 private:
  const Rounding& rounding(ValueId id) {
    auto found = roundings_.find(id);
    if (found == roundings_.end()) {
      found = roundings_.emplace(id, rounding_of(*graph_.value(id).constant)).first;
    }
    return found->second;
  }

  void keep_smallest_weights(double share) {
    std::vector<std::pair<std::uint64_t, std::size_t>> products;  // bytes of the weights, node
    std::uint64_t total = 0, kept = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      std::uint64_t bytes = 0;
      for (const ValueId id : graph_.nodes[i].inputs) {
        bytes += is_float(graph_, id) && graph_.is_constant(id) ? graph_.value(id).constant->bytes() : 0;
      }
      total += bytes;
      if (bytes > 0 && is_one_of(graph_.nodes[i], kProducts)) {
        products.emplace_back(bytes, i);
      }
    }
    // Of weights of one size, those nearer to the outputs first: less is computed from them that averages errors out.
    std::sort(products.begin(), products.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    for (const auto& [bytes, node] : products) {
      kept += bytes;
      if (static_cast<double>(kept) > share * static_cast<double>(total)) {
        break;
      }
      single_[node] = true;
    }
  }

  // Whether ONNX lets the node have FP16 in place of all its FP32.
  static bool has_half_form(const Graph& graph, const Node& node) {
    if (!node.domain.empty() || node.schema->definition.output_type != nullptr || node.op == "QuantizeLinear" ||
        node.op == "DequantizeLinear") {
      return false;
    }
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (is_float(graph, node.inputs[i])) {
        any = true;
        const Parameter* parameter = node.schema->input(i);
        if (parameter == nullptr || !contains(node.schema->types(parameter->type), DType::kFloat16)) {
          return false;
        }
      }
    }
    return any;
  }

  bool reads_quantized(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      const int producer = id == kNoValue ? -1 : uses_.producer[static_cast<std::size_t>(id)];
      return producer >= 0 && graph_.nodes[static_cast<std::size_t>(producer)].op == "DequantizeLinear";
    });
  }

  bool is_only_summed(const Node& node) const {
    const auto& users = uses_.users[static_cast<std::size_t>(node.outputs[0])];
    return (node.op == "Mul" || node.op == "Abs" || node.op == "Sub") && !users.empty() &&
           std::all_of(users.begin(), users.end(), [&](std::int32_t user) {
             return is_one_of(graph_.nodes[static_cast<std::size_t>(user)], kSums);
           });
  }

  void decide(std::size_t index) {
    const Node& node = graph_.nodes[index];
    bool overflows = false, loses = false, any_single = false, all_single = true, any_wide = false, variable = false;
    for (const ValueId id : node.inputs) {
      if (!is_float(graph_, id)) {
        continue;
      }
      if (graph_.is_constant(id)) {
        overflows = overflows || rounding(id).overflows;
        const bool one = graph_.value(id).constant->elements() == 1;
        loses = loses || rounding(id).loss > (one ? kMostLossOfOne : kMostLoss);
        continue;
      }
      variable = true;
      any_single = any_single || made_single_[static_cast<std::size_t>(id)];
      all_single = all_single && made_single_[static_cast<std::size_t>(id)];
      any_wide = any_wide || wide_[static_cast<std::size_t>(id)];
    }
    const bool product = is_one_of(node, kProducts);
    const bool differs = (node.op == "Sub" || node.op == "Div") && any_single;
    if (!has_half_form(graph_, node) || is_one_of(node, kSensitive) || overflows || loses || any_wide || differs ||
        (!product && variable && all_single) || (product && reads_quantized(node)) || is_only_summed(node)) {
      single_[index] = true;
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) {
        made_single_[static_cast<std::size_t>(id)] = single_[index];
        wide_[static_cast<std::size_t>(id)] = (overflows || any_wide) && !is_one_of(node, kBounding);
      }
    }
  }

  const Graph& graph_;
  const Uses uses_;
  std::vector<bool> single_;       // by node: FP32
  std::vector<bool> made_single_;  // by value: computed in FP32
  std::vector<bool> wide_;         // by value: may lie beyond FP16
  std::map<ValueId, Rounding> roundings_;
};

// Rewrites the graph as planned. A value that a half node computes keeps its id and name, unless it is an output.
class Converter {
 public:
  Converter(Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {
    half_.resize(graph.values.size(), kNoValue);
    single_.resize(graph.values.size(), kNoValue);
    is_output_.resize(graph.values.size(), false);
    for (const ValueId id : graph.outputs) {
      is_output_[static_cast<std::size_t>(id)] = true;
    }
    for (const auto& opset : graph.nodes) {
      opset_ = opset.domain.empty() ? opset.opset : opset_;
    }
  }

  Result<std::size_t> run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    std::size_t changes = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Status status = plan_.is_half(i) ? add_half(std::move(nodes[i])) : add_single(std::move(nodes[i]));
      changes += plan_.is_half(i) ? 1 : 0;
      if (!status.ok()) {
        return status;
      }
    }
    return changes;
  }

 private:
  Status cast(ValueId from, ValueId to, DType dtype) {
    Node node;
    node.op = "Cast";
    node.opset = opset_;
    node.name = graph_.value(to).name + "_cast";
    node.inputs = {from};
    node.outputs = {to};
    node.set("to", static_cast<std::int64_t>(dtype));
    graph_.value(to).type.dtype = dtype;
    if (Status status = bind_schema(graph_, node); !status.ok()) {
      return status;
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  ValueId like(ValueId id, const char* suffix) {
    const Value& value = graph_.value(id);
    return graph_.add_value(value.name + suffix, value.type, value.has_shape);
  }

  // The FP16 form of a float value.
  Status half_of(ValueId id, ValueId& result) {
    ValueId& known = half_[static_cast<std::size_t>(id)];
    if (known == kNoValue && graph_.is_constant(id)) {
      auto tensor = to_half(*graph_.value(id).constant);
      if (!tensor.ok()) {
        return tensor.status();
      }
      known = graph_.add_constant(graph_.value(id).name, std::move(*tensor));
    } else if (known == kNoValue) {
      known = like(id, "_fp16");
      if (Status status = cast(id, known, DType::kFloat16); !status.ok()) {
        return status;
      }
    }
    result = known;
    return {};
  }

  Status add_half(Node node) {
    for (ValueId& id : node.inputs) {
      if (is_single(id)) {
        if (Status status = half_of(id, id); !status.ok()) {
          return status;
        }
      }
    }
    std::vector<ValueId> outputs;
    for (ValueId& id : node.outputs) {
      if (is_float(graph_, id)) {
        const ValueId old = id;
        if (is_output_[static_cast<std::size_t>(old)]) {
          id = like(old, "_fp16");
          outputs.push_back(old);
        }
        half_[static_cast<std::size_t>(old)] = id;
        graph_.value(id).type.dtype = DType::kUndefined;
      }
    }
    if (Status status = bind_schema(graph_, node); !status.ok()) {
      return status;
    }
    graph_.nodes.push_back(std::move(node));
    for (const ValueId id : outputs) {
      single_[static_cast<std::size_t>(id)] = id;
      if (Status status = cast(half_[static_cast<std::size_t>(id)], id, DType::kFloat); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  Status add_single(Node node) {
    for (ValueId& id : node.inputs) {
      // What a half node computed has become FP16 itself.
      if (id == kNoValue || static_cast<std::size_t>(id) >= half_.size() || half_[static_cast<std::size_t>(id)] != id) {
        continue;
      }
      ValueId& known = single_[static_cast<std::size_t>(id)];
      if (known == kNoValue) {
        const ValueId made = like(id, "_fp32");
        if (Status status = cast(id, made, DType::kFloat); !status.ok()) {
          return status;
        }
        known = made;
      }
      id = known;
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  // Whether a half node must ask for the FP16 form of an input.
  bool is_single(ValueId id) const {
    return id != kNoValue && static_cast<std::size_t>(id) < half_.size() && half_[static_cast<std::size_t>(id)] != id &&
           is_float(graph_, id);
  }

  Graph& graph_;
  const Plan& plan_;
  std::vector<ValueId> half_, single_;  // by value of the graph as it was: its form in that precision, if it is made
  std::vector<bool> is_output_;
  int opset_ = 13;
};

Result<std::size_t> run(Graph& graph, const PassContext& context) {
  if (context.precision != Precision::kFp16) {
    return 0;
  }
  const Plan plan(graph, context.fp32_weights);
  auto changes = Converter(graph, plan).run();
  graph.remove_dead();
  return changes;
}

}  // namespace

Pass make_precision() {
  return {"precision", "with FP16 asked for: half precision, with islands of FP32", Pass::Stage::kModel, run};
}

}  // namespace sluice::engine
