// Keeps images in blocks of eight channels between convolutions, which is what fast kernels want: nodes that do not
// care where an element lies follow suit, and only at the borders is a tensor reordered (operators/blocked.cc).
#include <algorithm>
#include <cmath>
#include <map>

#include "cpu/avx2.h"
#include "operators/registry.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace sluice::engine {
namespace {

constexpr std::int64_t kBlock = 8;

constexpr std::string_view kUnary[] = {"Abs",  "Clip", "Elu",     "Erf",        "Exp",       "HardSigmoid",
                                       "Neg",  "Relu", "Sigmoid", "HardSwish",  "LeakyRelu", "Softplus",
                                       "Sqrt", "Tanh", "Log",     "Reciprocal", "Floor",     "Ceil"};
constexpr std::string_view kBinary[] = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum"};

template <std::size_t kCount>
bool is_one_of(const Node& node, const std::string_view (&names)[kCount]) {
  return node.domain.empty() && std::find(std::begin(names), std::end(names), node.op) != std::end(names);
}

class Layout {
 public:
  explicit Layout(Graph& graph) : graph_(graph) {}

  Result<std::size_t> run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      auto done = follow(node);
      if (!done.ok()) {
        return done.status();
      }
      if (*done) {
        ++changes_;
        continue;
      }
      for (const ValueId id : node.inputs) {
        if (Status status = need_plain(id); !status.ok()) {
          return status;
        }
      }
      graph_.nodes.push_back(std::move(node));
    }
    for (const ValueId id : graph_.outputs) {
      if (Status status = need_plain(id); !status.ok()) {
        return status;
      }
    }
    return changes_;
  }

 private:
  const Dims& dims(ValueId id) const { return graph_.value(id).type.dims; }
  bool is_image(ValueId id) const {
    return graph_.value(id).type.dtype == DType::kFloat && dims(id).size() == 4 && element_count(dims(id)) > 0;
  }
  bool has_blocks(ValueId id) const { return is_image(id) && dims(id)[1] % kBlock == 0; }
  bool is_blocked(ValueId id) const { return blocked_.contains(id); }
  bool is_pixel(ValueId id) const { return dims(id)[2] == 1 && dims(id)[3] == 1; }
  Dims blocked_dims(ValueId id) const {
    const Dims& plain = dims(id);
    return {plain[0], plain[1] / kBlock, plain[2], plain[3], kBlock};
  }

  Status append(Node node) {
    if (Status status = bind_schema(graph_, node); !status.ok()) {
      return status;
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  // The value in blocks, reordered here if it is not there yet. REQUIRES: has_blocks.
  Result<ValueId> need_blocked(ValueId id) {
    if (const auto found = blocked_.find(id); found != blocked_.end()) {
      return found->second;
    }
    const ValueId made = new_blocked(id, true);
    Status status = append(own_node(is_pixel(id) ? "BlockView" : "Block", 13, {id}, made));
    return status.ok() ? Result<ValueId>(made) : status;
  }

  Status need_plain(ValueId id) {
    if (id == kNoValue || !is_blocked(id) || plain_.contains(id)) {
      return {};
    }
    plain_[id] = true;
    return append(own_node(is_pixel(id) ? "UnblockView" : "Unblock", 13, {blocked_[id]}, id));
  }

  // A value that holds what `id` holds, in blocks. It has no name: in the model there is no such tensor.
  ValueId new_blocked(ValueId id, bool is_plain) {
    const ValueId made = graph_.add_value("", {DType::kFloat, blocked_dims(id)}, true);
    blocked_[id] = made;
    if (is_plain) {
      plain_[id] = true;
    }
    return made;
  }

  // Whether the node was made one on blocked tensors.
  Result<bool> follow(const Node& node) {
    if (node.outputs.empty() || node.outputs[0] == kNoValue || !is_image(node.outputs[0]) || node.inputs.empty() ||
        node.inputs[0] == kNoValue) {
      return false;
    }
    const bool own = node.domain == kOwnDomain;
    if (is_op(node, "Conv") || (own && node.op == "FusedConv")) {
      return convolution(node);
    }
    if ((is_op(node, "GlobalAveragePool") || is_spatial_mean(node)) && is_blocked(node.inputs[0])) {
      return replace(own_node("BlockedGlobalAverage", node.opset, {blocked_[node.inputs[0]]}, node.outputs[0]), node);
    }
    if (is_op(node, "Split") && is_blocked(node.inputs[0])) {
      return split(node);
    }
    if (!has_blocks(node.outputs[0])) {
      return false;
    }
    if (is_one_of(node, kBinary) || (own && node.op == "FusedElementwise")) {
      return elementwise(node);
    }
    if (is_op(node, "Concat")) {
      return concat(node);
    }
    if (!is_blocked(node.inputs[0])) {
      return false;
    }
    if (is_one_of(node, kUnary) || (own && node.op == "FusedActivation")) {
      return same_node(node, {blocked_[node.inputs[0]]}, 1);
    }
    if (is_op(node, "MaxPool") || is_op(node, "AveragePool")) {
      return pool(node);
    }
    return is_op(node, "Resize") || is_op(node, "Upsample") ? resize(node) : Result<bool>(false);
  }

  Result<bool> replace(Node made, const Node& node) {
    made.name = node.name;
    Status status = append(std::move(made));
    return status.ok() ? Result<bool>(true) : status;
  }

  // The node on blocked values; those of its inputs from `kept` on stay.
  Result<bool> same_node(const Node& node, std::vector<ValueId> inputs, std::size_t kept) {
    Node made = node;
    inputs.insert(inputs.end(), node.inputs.begin() + static_cast<std::ptrdiff_t>(kept), node.inputs.end());
    made.inputs = std::move(inputs);
    made.outputs = {new_blocked(node.outputs[0], false)};
    return replace(std::move(made), node);
  }

  bool is_spatial_mean(const Node& node) const {
    auto axes = node.get_ints("axes");
    std::sort(axes.begin(), axes.end());
    return is_op(node, "ReduceMean") && node.get_int("keepdims", 1) == 1 && is_image(node.inputs[0]) &&
           (axes == Dims{2, 3} || axes == Dims{-2, -1});
  }

  // A window's geometry along both axes, with pads as numbers.
  struct Window {
    Dims kernel, strides, dilations, pads;
  };
  Window window(const Node& node, Dims kernel) const {
    Window result{std::move(kernel), node.get_ints("strides", {1, 1}), node.get_ints("dilations", {1, 1}),
                  node.get_ints("pads", {0, 0, 0, 0})};
    const std::string mode = node.get_string("auto_pad", "NOTSET");
    if (mode.starts_with("SAME") || mode == "VALID") {
      result.pads.assign(4, 0);
    }
    for (std::size_t d = 0; d < 2 && mode.starts_with("SAME"); ++d) {
      const std::int64_t in = dims(node.inputs[0])[2 + d], out = dims(node.outputs[0])[2 + d];
      const std::int64_t span = (out - 1) * result.strides[d] + (result.kernel[d] - 1) * result.dilations[d] + 1;
      const std::int64_t both = std::max<std::int64_t>(0, span - in);
      result.pads[d] = mode == "SAME_UPPER" ? both / 2 : both - both / 2;
      result.pads[2 + d] = both - result.pads[d];
    }
    return result;
  }

  Result<bool> convolution(const Node& node) {
    const ValueId x = node.inputs[0], w = node.inputs[1], y = node.outputs[0];
    const std::int64_t group = node.get_int("group", 1);
    if (!is_image(x) || !graph_.is_constant(w) || (node.has_input(2) && !graph_.is_constant(node.inputs[2])) ||
        !has_blocks(y)) {
      return false;
    }
    const std::int64_t channels = dims(x)[1];
    const bool depthwise = group == channels && dims(w)[0] == channels && group > 1;
    const Window at = window(node, {dims(w)[2], dims(w)[3]});
    const bool plain = channels % kBlock != 0;
    if ((group != 1 && !depthwise) || (plain && (depthwise || at.dilations[1] != 1)) ||
        (is_pixel(x) && is_pixel(y) && dims(w)[2] == 1 && dims(w)[3] == 1)) {  // a product of matrices
      return false;
    }
    std::vector<ValueId> inputs = {x, w};
    if (plain) {
      if (Status status = need_plain(x); !status.ok()) {
        return status;
      }
    } else if (auto made = need_blocked(x); made.ok()) {
      inputs[0] = *made;
    } else {
      return made.status();
    }
    inputs.push_back(node.has_input(2) ? node.inputs[2] : kNoValue);
    if (node.has_input(3)) {
      auto residual = need_blocked(node.inputs[3]);
      if (!residual.ok()) {
        return residual.status();
      }
      inputs.push_back(*residual);
    }
    Node made = own_node("BlockedConv", node.opset, std::move(inputs), new_blocked(y, false));
    made.set("strides", at.strides);
    made.set("dilations", at.dilations);
    made.set("pads", at.pads);
    made.set("group", group);
    made.set("output", blocked_dims(y));
    for (const Attribute& attribute : node.attributes) {
      if (attribute.name.starts_with("activation")) {
        made.attributes.push_back(attribute);
      }
    }
    return replace(std::move(made), node);
  }

  Result<bool> pool(const Node& node) {
    const Window at = window(node, node.get_ints("kernel_shape"));
    if (at.dilations != Dims{1, 1} || node.has_output(1)) {
      return false;
    }
    Node made = own_node("BlockedPool", node.opset, {blocked_[node.inputs[0]]}, kNoValue);
    made.set("kind", std::string(node.op == "MaxPool" ? "max" : "average"));
    made.set("kernel", at.kernel);
    made.set("strides", at.strides);
    made.set("pads", at.pads);
    made.set("count_include_pad", node.get_int("count_include_pad", 0));
    made.set("output", blocked_dims(node.outputs[0]));
    made.outputs = {new_blocked(node.outputs[0], false)};
    return replace(std::move(made), node);
  }

  Result<bool> resize(const Node& node) {
    const Dims &x = dims(node.inputs[0]), &y = dims(node.outputs[0]);
    const std::string transform = node.get_string("coordinate_transformation_mode", "half_pixel");
    const std::string rounding = node.get_string("nearest_mode", "round_prefer_floor");
    // By a whole factor, both pick the pixel that the result's lies in.
    const bool old = node.op == "Upsample" || node.opset < 11;
    const bool same = old || (transform == "asymmetric" && rounding == "floor") ||
                      (transform == "half_pixel" && rounding.starts_with("round"));
    if (node.get_string("mode", "nearest") != "nearest" || !same || x[0] != y[0] || x[1] != y[1] || y[2] % x[2] != 0 ||
        y[3] % x[3] != 0 || !scales_are(node, {1, 1, y[2] / x[2], y[3] / x[3]})) {
      return false;
    }
    Node made = own_node("BlockedResize", node.opset, {blocked_[node.inputs[0]]}, kNoValue);
    made.set("factor_h", y[2] / x[2]);
    made.set("factor_w", y[3] / x[3]);
    made.outputs = {new_blocked(node.outputs[0], false)};
    return replace(std::move(made), node);
  }

  // Scales may be such that the result has a whole factor only by rounding; sizes are exact.
  bool scales_are(const Node& node, const Dims& factors) const {
    const std::size_t input = node.opset < 11 ? 1 : 2;
    if (!node.has_input(input)) {
      const std::vector<float> given = node.get_floats("scales");
      return node.has_input(3) || std::equal(given.begin(), given.end(), factors.begin(), factors.end());
    }
    const auto& scales = graph_.value(node.inputs[input]).constant;
    if (!scales || scales->elements() != 4) {
      return scales && scales->elements() == 0 && node.has_input(3);
    }
    for (std::int64_t i = 0; i < 4; ++i) {
      if (scales->as_double(i) != static_cast<double>(factors[static_cast<std::size_t>(i)])) {
        return false;
      }
    }
    return true;
  }

  // How an operand of an elementwise node can stand beside blocked ones.
  enum class Operand { kBlocked, kScalar, kChannels, kNone };
  Operand operand(ValueId id, const Dims& out) const {
    const Dims& own = dims(id);
    if (element_count(own) == 1 && own.size() <= 4) {
      return Operand::kScalar;
    }
    if (has_blocks(id) && own[1] == out[1] && (own[0] == out[0] || own[0] == 1) &&
        ((own[2] == out[2] && own[3] == out[3]) || is_pixel(id))) {
      return Operand::kBlocked;
    }
    const bool channels = own.size() == 3 && own[0] == out[1] && own[1] == 1 && own[2] == 1;
    return channels && graph_.is_constant(id) ? Operand::kChannels : Operand::kNone;
  }

  Result<bool> elementwise(const Node& node) {
    const Dims out = dims(node.outputs[0]);
    bool worth = false;
    for (const ValueId id : node.inputs) {
      if (operand(id, out) == Operand::kNone) {
        return false;
      }
      worth = worth || (is_blocked(id) && dims(id) == out);
    }
    if (!worth) {
      return false;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      switch (operand(id, out)) {
        case Operand::kBlocked: {
          auto made = need_blocked(id);
          if (!made.ok()) {
            return made.status();
          }
          inputs.push_back(*made);
          break;
        }
        case Operand::kChannels:
          inputs.push_back(
              graph_.add_constant("", graph_.value(id).constant->with_dims({1, out[1] / kBlock, 1, 1, kBlock})));
          break;
        default:
          if (Status status = need_plain(id); !status.ok()) {
            return status;
          }
          inputs.push_back(id);
      }
    }
    return same_node(node, std::move(inputs), node.inputs.size());
  }

  Result<bool> concat(const Node& node) {
    const std::int64_t axis = node.get_int("axis", 0);
    std::size_t ready = 0;
    for (const ValueId id : node.inputs) {
      if (!has_blocks(id)) {
        return false;
      }
      ready += is_blocked(id) ? 1 : 0;
    }
    if ((axis != 1 && axis != -3) || 2 * ready < node.inputs.size()) {
      return false;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      auto made = need_blocked(id);
      if (!made.ok()) {
        return made.status();
      }
      inputs.push_back(*made);
    }
    Node made = node;
    made.inputs = std::move(inputs);
    made.set("axis", std::int64_t{1});
    made.outputs = {new_blocked(node.outputs[0], false)};
    return replace(std::move(made), node);
  }

  Result<bool> split(const Node& node) {
    const std::int64_t axis = node.get_int("axis", 0);
    std::vector<std::int64_t> sizes;
    for (const ValueId id : node.outputs) {
      if (id == kNoValue || !has_blocks(id)) {
        return false;
      }
      sizes.push_back(dims(id)[1] / kBlock);
    }
    if (axis != 1 && axis != -3) {
      return false;
    }
    auto constant = Tensor::allocate(DType::kInt64, {static_cast<std::int64_t>(sizes.size())});
    if (!constant.ok()) {
      return constant.status();
    }
    std::copy(sizes.begin(), sizes.end(), constant->mutable_as<std::int64_t>());
    Node made;
    made.op = "Split";
    made.opset = 13;
    made.inputs = {blocked_[node.inputs[0]], graph_.add_constant("", std::move(*constant))};
    made.set("axis", std::int64_t{1});
    for (const ValueId id : node.outputs) {
      made.outputs.push_back(new_blocked(id, false));
    }
    return replace(std::move(made), node);
  }

  Graph& graph_;
  std::map<ValueId, ValueId> blocked_;
  std::map<ValueId, bool> plain_;  // of those in blocked_: that exist in row-major order, too
  std::size_t changes_ = 0;
};

Result<std::size_t> run(Graph& graph, const PassContext& context) {
  if (context.device != "cpu" || !cpu::has_avx2()) {
    return 0;
  }
  return Layout(graph).run();
}

}  // namespace

Pass make_layout() {
  return {"layout", "keeps images in blocks of eight channels between convolutions", Pass::Stage::kProgram, run};
}

}  // namespace sluice::engine
