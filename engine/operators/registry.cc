#include "operators/registry.h"

#include <fmt/format.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "operators/older_opsets.h"

namespace sluice::engine {

#define FAMILY(name) void register_##name(Registry& registry);
#include "operator_families.inc"
#undef FAMILY

namespace {

constexpr const char* kKindNames[] = {"float", "int", "string", "tensor", "floats", "ints", "strings", "graph"};

[[noreturn]] void stop(const Operator& definition, std::string_view what) {
  fmt::print(stderr, "sluice: the schema of {} is wrong: {}\n", definition.op, what);
  std::abort();
}

// "a:b, c:d" -> {{a, b}, {c, d}}
std::vector<std::pair<std::string, std::string>> pairs_of(const Operator& definition, std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      stop(definition, item);
    }
    pairs.emplace_back(item.substr(0, colon), item.substr(colon + 1));
  }
  return pairs;
}

std::vector<Parameter> parameters_of(const Operator& definition, std::string_view text) {
  std::vector<Parameter> parameters;
  for (auto& [name, type] : pairs_of(definition, text)) {
    Parameter parameter{name, type, Parameter::Kind::kRequired};
    if (type.ends_with('?') || type.ends_with('*')) {
      parameter.kind = type.back() == '?' ? Parameter::Kind::kOptional : Parameter::Kind::kVariadic;
      parameter.type.pop_back();
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<AttributeRule> attributes_of(const Operator& definition, std::string_view text) {
  std::vector<AttributeRule> rules;
  for (auto& [name, kind] : pairs_of(definition, text)) {
    AttributeRule rule{name, AttributeKind::kInt, kind.ends_with('!')};
    if (rule.required) {
      kind.pop_back();
    }
    std::size_t i = 0;
    while (i < std::size(kKindNames) && kind != kKindNames[i]) {
      ++i;
    }
    if (i == std::size(kKindNames)) {
      stop(definition, kind);
    }
    rule.kind = static_cast<AttributeKind>(i);
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::string key_of(std::string_view domain, std::string_view op) { return fmt::format("{}.{}", domain, op); }

Status check_arity(const Node& node, const char* what, const std::vector<ValueId>& ids,
                   const std::vector<Parameter>& parameters) {
  const bool variadic = !parameters.empty() && parameters.back().kind == Parameter::Kind::kVariadic;
  if (ids.size() > parameters.size() && !variadic) {
    return refuse(node, fmt::format("{} {}s where {} are supported", ids.size(), what, parameters.size()),
                  "export the model without them");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool there = i < ids.size() && ids[i] != kNoValue;
    if (!there && parameters[i].kind == Parameter::Kind::kRequired) {
      return Status::error(Code::kInvalidArgument, "%s lacks its %s '%s'; the model is damaged", describe(node).c_str(),
                           what, parameters[i].name.c_str());
    }
  }
  if (variadic && ids.size() < parameters.size()) {
    return Status::error(Code::kInvalidArgument, "%s lacks its %ss; the model is damaged", describe(node).c_str(),
                         what);
  }
  for (std::size_t i = parameters.empty() ? 0 : parameters.size() - 1; i < ids.size(); ++i) {
    if (variadic && ids[i] == kNoValue) {
      return Status::error(Code::kInvalidArgument, "%s leaves out one of its %ss; the model is damaged",
                           describe(node).c_str(), what);
    }
  }
  return {};
}

Status check_attributes(const Node& node, const Schema& schema) {
  for (const Attribute& attribute : node.attributes) {
    const AttributeRule* rule = nullptr;
    for (const AttributeRule& candidate : schema.attributes) {
      rule = candidate.name == attribute.name ? &candidate : rule;
    }
    if (rule == nullptr) {
      return refuse(node, fmt::format("attribute '{:.40}' is not supported", attribute.name),
                    "export the model without it or with another opset");
    }
    if (rule->kind != attribute.kind()) {
      return Status::error(Code::kInvalidArgument, "%s: attribute '%s' must be of kind %s; the model is damaged",
                           describe(node).c_str(), rule->name.c_str(), kKindNames[static_cast<int>(rule->kind)]);
    }
  }
  for (const AttributeRule& rule : schema.attributes) {
    if (rule.required && !node.has(rule.name)) {
      return Status::error(Code::kInvalidArgument, "%s lacks its attribute '%s'; the model is damaged",
                           describe(node).c_str(), rule.name.c_str());
    }
  }
  return {};
}

// The element types that the inputs gave to the type names of one node.
class Bindings {
 public:
  Bindings(const Node& node, const Schema& schema) : node_(node), schema_(schema) {}

  Status bind(const Parameter& parameter, DType dtype) {
    if (!contains(schema_.types(parameter.type), dtype)) {
      return refuse(node_, fmt::format("type {} of '{}' is not supported", dtype_name(dtype), parameter.name),
                    "export the model with another type");
    }
    for (const auto& [name, bound] : bound_) {
      if (name == parameter.type && bound != dtype) {
        return Status::error(Code::kInvalidArgument, "%s: '%s' is %s where %s is expected; the model is damaged",
                             describe(node_).c_str(), parameter.name.c_str(), dtype_name(dtype), dtype_name(bound));
      }
    }
    bound_.emplace_back(parameter.type, dtype);
    return {};
  }

  // kUndefined if nothing bound it.
  DType find(std::string_view name) const {
    for (const auto& [bound_name, dtype] : bound_) {
      if (bound_name == name) {
        return dtype;
      }
    }
    return DType::kUndefined;
  }

 private:
  const Node& node_;
  const Schema& schema_;
  std::vector<std::pair<std::string_view, DType>> bound_;
};

// The one type of a set, or kUndefined.
DType only_type(TypeSet set) {
  return set != 0 && (set & (set - 1)) == 0 ? static_cast<DType>(__builtin_ctz(set)) : DType::kUndefined;
}

Status bind_types(Graph& graph, const Node& node, const Schema& schema) {
  Bindings bindings(node, schema);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) {
      continue;
    }
    if (Status status = bindings.bind(*schema.input(i), graph.value(node.inputs[i]).type.dtype); !status.ok()) {
      return status;
    }
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const Parameter& parameter = *schema.output(i);
    DType dtype = bindings.find(parameter.type);
    if (dtype == DType::kUndefined && schema.definition.output_type != nullptr) {
      const bool has_input = node.has_input(0);
      dtype =
          schema.definition.output_type(node, has_input ? graph.value(node.inputs[0]).type.dtype : DType::kUndefined);
    }
    if (dtype == DType::kUndefined) {
      dtype = only_type(schema.types(parameter.type));
    }
    if (Status status = bindings.bind(parameter, dtype); !status.ok()) {
      return status;
    }
    if (node.outputs[i] == kNoValue) {
      continue;
    }
    Value& value = graph.value(node.outputs[i]);
    if (value.type.dtype != DType::kUndefined && value.type.dtype != dtype) {
      return Status::error(Code::kInvalidArgument, "%s yields %s where the model says %s; the model is damaged",
                           describe(node).c_str(), dtype_name(dtype), dtype_name(value.type.dtype));
    }
    value.type.dtype = dtype;
  }
  return {};
}

}  // namespace

const Parameter* Schema::parameter(const std::vector<Parameter>& list, std::size_t i) {
  if (i < list.size()) {
    return &list[i];
  }
  return !list.empty() && list.back().kind == Parameter::Kind::kVariadic ? &list.back() : nullptr;
}

TypeSet Schema::types(std::string_view name) const {
  for (const TypeRule& rule : definition.types) {
    if (rule.name == name) {
      return rule.types;
    }
  }
  return 0;
}

Status refuse(const Node& node, std::string_view what, std::string_view what_to_do) {
  return Status::error(Code::kUnimplemented, "%s: %.*s; %.*s", describe(node).c_str(), static_cast<int>(what.size()),
                       what.data(), static_cast<int>(what_to_do.size()), what_to_do.data());
}

const Registry& Registry::get() {
  static const Registry registry = [] {
    Registry built;
#define FAMILY(name) register_##name(built);
#include "operator_families.inc"
#undef FAMILY
    return built;
  }();
  return registry;
}

void Registry::add(Operator definition) {
  Schema schema{definition, parameters_of(definition, definition.inputs), parameters_of(definition, definition.outputs),
                attributes_of(definition, definition.attributes)};
  for (const auto* list : {&schema.inputs, &schema.outputs}) {
    for (const Parameter& parameter : *list) {
      if (schema.types(parameter.type) == 0) {
        stop(definition, parameter.type);
      }
    }
  }
  if (definition.infer == nullptr) {
    stop(definition, "it infers no shapes");
  }
  auto& versions = schemas_[key_of(definition.domain, definition.op)];
  for (const Schema& other : versions) {
    if (definition.first <= other.definition.last && other.definition.first <= definition.last) {
      stop(definition, "two definitions for one opset");
    }
  }
  versions.push_back(std::move(schema));
}

const Schema* Registry::find(std::string_view domain, std::string_view op, int opset) const {
  // Nodes that passes make carry the opset of those they stand for.
  const bool as_in_7 = opset < 7 && (domain == kOwnDomain || (domain.empty() && holds_in_older_opset(op, opset)));
  const auto found = schemas_.find(key_of(domain, op));
  if (found != schemas_.end()) {
    for (const Schema& schema : found->second) {
      if ((schema.definition.first <= opset && opset <= schema.definition.last) ||
          (as_in_7 && schema.definition.first == 7)) {
        return &schema;
      }
    }
  }
  return nullptr;
}

bool Registry::knows(std::string_view domain, std::string_view op) const {
  return schemas_.contains(key_of(domain, op));
}

Status bind_schema(Graph& graph, Node& node) {
  const Registry& registry = Registry::get();
  node.schema = registry.find(node.domain, node.op, node.opset);
  if (node.schema == nullptr) {
    return registry.knows(node.domain, node.op)
               ? refuse(node, "the operator is not supported in this opset", "export the model with opset 13 to 17")
               : refuse(node, "the operator is not supported", "export the model without it");
  }
  if (node.schema->definition.bind != nullptr) {
    Status status = check_attributes(node, *node.schema);
    return status.ok() ? node.schema->definition.bind(graph, node) : status;
  }
  Status status = check_arity(node, "input", node.inputs, node.schema->inputs);
  if (status.ok()) {
    status = check_arity(node, "output", node.outputs, node.schema->outputs);
  }
  if (status.ok()) {
    status = check_attributes(node, *node.schema);
  }
  if (status.ok()) {
    status = bind_types(graph, node, *node.schema);
  }
  if (status.ok() && node.schema->definition.check != nullptr) {
    status = node.schema->definition.check(node);
  }
  return status;
}

Status bind_schemas(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (Status status = bind_schema(graph, node); !status.ok()) {
      return status;
    }
  }
  return {};
}

// ---- contexts ----

namespace {

Status error_of(const Node& node, Code code, const char* format, va_list arguments) {
  char text[Status::kMessageBytes];
  std::vsnprintf(text, sizeof(text), format, arguments);
  return Status::error(code, "%s: %s", describe(node).c_str(), text);
}

}  // namespace

const Tensor* ShapeContext::constant(std::size_t i) const {
  return has_input(i) && graph_.is_constant(node_.inputs[i]) ? &*graph_.value(node_.inputs[i]).constant : nullptr;
}

Result<std::vector<std::int64_t>> ShapeContext::ints(std::size_t i) const {
  const Tensor* tensor = constant(i);
  if (tensor == nullptr) {
    return error(Code::kUnimplemented, "input %zu depends on the data; only what depends on shapes is supported", i);
  }
  return int_values(*tensor);
}

Status ShapeContext::set(std::size_t output, Dims dims) {
  if (!node_.has_output(output)) {
    return {};
  }
  Value& value = graph_.value(node_.outputs[output]);
  auto bytes = tensor_bytes(value.type.dtype, dims);
  if (!bytes.ok()) {
    return error(bytes.status().code(), "%s", bytes.status().message());
  }
  value.type.dims = std::move(dims);
  value.has_shape = true;
  return {};
}

Result<std::int64_t> ShapeContext::axis(std::int64_t value, std::int64_t rank) const {
  if (value < -rank || value >= rank) {
    return error(Code::kInvalidArgument, "axis %lld of a tensor of %lld dimensions", static_cast<long long>(value),
                 static_cast<long long>(rank));
  }
  return value < 0 ? value + rank : value;
}

Status ShapeContext::error(Code code, const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  Status status = error_of(node_, code, format, arguments);
  va_end(arguments);
  return status;
}

const Tensor* KernelContext::constant(std::size_t i) const {
  return has_input(i) && graph_.is_constant(node_.inputs[i]) ? &*graph_.value(node_.inputs[i]).constant : nullptr;
}

Status KernelContext::error(Code code, const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  Status status = error_of(node_, code, format, arguments);
  va_end(arguments);
  return status;
}

}  // namespace sluice::engine
