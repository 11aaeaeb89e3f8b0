#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/graph.h"

namespace sluice::engine {
namespace {

constexpr std::size_t kShownElements = 8;  // of a list

template <class T>
std::string list(const std::vector<T>& items) {
  std::vector<T> shown(items.begin(),
                       items.begin() + static_cast<std::ptrdiff_t>(std::min(items.size(), kShownElements)));
  return fmt::format("[{}{}]", fmt::join(shown, ", "), items.size() > kShownElements ? ", ..." : "");
}

std::string text_of(const Attribute& attribute) {
  struct Visitor {
    std::string operator()(float v) const { return fmt::format("{}", v); }
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
    std::string operator()(const Tensor& v) const { return to_string(v.type()); }
    std::string operator()(const std::vector<float>& v) const { return list(v); }
    std::string operator()(const std::vector<std::int64_t>& v) const { return list(v); }
    std::string operator()(const std::vector<std::string>& v) const { return list(v); }
    std::string operator()(const std::shared_ptr<const Graph>& v) const {
      return fmt::format("graph of {} nodes", v->nodes.size());
    }
  };
  return attribute.name + "=" + std::visit(Visitor{}, attribute.value);
}

std::string text_of(const Graph& graph, ValueId id) {
  return id == kNoValue ? std::string("_") : fmt::format("%{}:{}", id, graph.value(id).name);
}

}  // namespace

std::string describe(const Node& node) {
  std::string text = node.domain.empty() ? node.op : node.domain + "." + node.op;
  if (!node.name.empty()) {
    text += fmt::format(" '{:.80}'", node.name);
  }
  return text + fmt::format(" (opset {})", node.opset);
}

std::string to_text(const Graph& graph) {
  std::string text;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    text += fmt::format("input {} {}\n", text_of(graph, graph.inputs[i]), to_string(value.type));
  }
  for (const Node& node : graph.nodes) {
    std::vector<std::string> inputs, outputs, attributes;
    for (const ValueId id : node.inputs) {
      inputs.push_back(text_of(graph, id) + (graph.is_constant(id) ? " " + to_string(graph.value(id).type) : ""));
    }
    for (const ValueId id : node.outputs) {
      outputs.push_back(text_of(graph, id));
      if (id != kNoValue && graph.value(id).has_shape) {
        outputs.back() += " " + to_string(graph.value(id).type);
      }
    }
    for (const Attribute& attribute : node.attributes) {
      attributes.push_back(text_of(attribute));
    }
    text += fmt::format("{} = {}{}({}){}{}\n", fmt::join(outputs, ", "), node.domain.empty() ? "" : node.domain + ".",
                        node.op, fmt::join(inputs, ", "), attributes.empty() ? "" : " ", fmt::join(attributes, " "));
  }
  for (const ValueId id : graph.outputs) {
    text += fmt::format("output {}\n", text_of(graph, id));
  }
  return text;
}

}  // namespace sluice::engine
