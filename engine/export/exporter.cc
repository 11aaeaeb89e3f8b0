#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_set>

#include "export/export.h"
#include "export/output_file.h"
#include "import/import.h"

namespace sluice::engine {
namespace {

constexpr std::size_t kSmallestExternal = 1024;  // runtimes look into small constants before they open other files
constexpr std::uint64_t kExternalAlignment = 64;
constexpr int kDefaultOpset = 13;  // where no node says

// The oldest IR version for an opset (ONNX, docs/Versioning.md), but at least 4: there, weights need not be inputs.
int ir_version(int opset) {
  constexpr int kByOpset[] = {4, 4, 4, 5, 6, 7, 7, 7, 8, 8, 8};  // 7 to 17
  return kByOpset[std::clamp(opset, kOldestOpset, kNewestOpset) - kOldestOpset];
}

class Exporter {
 public:
  Exporter(const Graph& graph, OutputFile* external, std::string external_name)
      : graph_(graph), external_(external), external_name_(std::move(external_name)), names_(graph.values.size()) {}

  Status build(onnx::ModelProto& model) {
    std::map<std::string, int> opsets;
    for (const Node& node : graph_.nodes) {
      int& opset = opsets[node.domain];
      if (node.domain == kOwnDomain || (opset != 0 && opset != node.opset)) {
        return Status::error(Code::kUnimplemented, "%s cannot be written: ONNX has no such node in this model's opset",
                             describe(node).c_str());
      }
      opset = node.opset;
    }
    if (!opsets.contains("")) {
      opsets[""] = kDefaultOpset;
    }
    model.set_ir_version(ir_version(opsets[""]));
    model.set_producer_name("sluice");
    model.set_producer_version(SLUICE_VERSION);
    for (const auto& [domain, version] : opsets) {
      auto* set = model.add_opset_import();
      set->set_domain(domain);
      set->set_version(version);
    }
    for (const auto& [key, value] : graph_.metadata) {
      auto* entry = model.add_metadata_props();
      entry->set_key(key);
      entry->set_value(value);
    }
    auto* proto = model.mutable_graph();
    proto->set_name(graph_.name.empty() ? "graph" : graph_.name);
    name_values();
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      write_spec(graph_.input_specs[i], *proto->add_input());
    }
    for (const Node& node : graph_.nodes) {
      if (Status status = write_node(node, *proto->add_node()); !status.ok()) {
        return status;
      }
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      write_spec(graph_.output_specs[i], *proto->add_output());
    }
    return write_constants(*proto);
  }

 private:
  // Inputs and outputs first, which keep theirs; an output that is no node's result gets an Identity of its own.
  void name_values() {
    for (const auto* specs : {&graph_.input_specs, &graph_.output_specs}) {
      for (const TensorSpec& spec : *specs) {
        taken_.insert(spec.name);
      }
    }
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      name_of(graph_.inputs[i]) = graph_.input_specs[i].name;
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      if (!graph_.is_constant(id) && name_of(id).empty()) {
        name_of(id) = graph_.output_specs[i].name;
      }
    }
  }

  std::string& name_of(ValueId id) { return names_[static_cast<std::size_t>(id)]; }

  const std::string& name(ValueId id) {
    static const std::string left_out;
    if (id == kNoValue) {
      return left_out;
    }
    std::string& known = name_of(id);
    if (known.empty()) {
      const std::string& wanted = graph_.value(id).name;
      known = wanted.empty() ? fmt::format("value_{}", id) : wanted;
      for (int i = 1; !taken_.insert(known).second; ++i) {
        known = fmt::format("{}_{}", wanted, i);
      }
      if (graph_.is_constant(id)) {
        constants_.push_back(id);
      }
    }
    return known;
  }

  static void write_spec(const TensorSpec& spec, onnx::ValueInfoProto& info) {
    info.set_name(spec.name);
    auto* type = info.mutable_type()->mutable_tensor_type();
    type->set_elem_type(static_cast<int>(spec.dtype));
    if (!spec.has_rank) {
      return;
    }
    type->mutable_shape();
    for (std::size_t d = 0; d < spec.dims.size(); ++d) {
      auto* dim = type->mutable_shape()->add_dim();
      if (spec.dims[d] >= 0) {
        dim->set_dim_value(spec.dims[d]);
      } else if (d < spec.symbols.size() && !spec.symbols[d].empty()) {
        dim->set_dim_param(spec.symbols[d]);
      }
    }
  }

  Status write_node(const Node& node, onnx::NodeProto& proto) {
    proto.set_op_type(node.op);
    proto.set_name(node.name);
    proto.set_domain(node.domain);
    for (const ValueId id : node.inputs) {
      proto.add_input(name(id));
    }
    for (const ValueId id : node.outputs) {
      proto.add_output(name(id));
    }
    for (const Attribute& attribute : node.attributes) {
      if (Status status = write_attribute(node, attribute, *proto.add_attribute()); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  Status write_attribute(const Node& node, const Attribute& attribute, onnx::AttributeProto& proto) {
    proto.set_name(attribute.name);
    switch (attribute.kind()) {
      case AttributeKind::kFloat:
        proto.set_type(onnx::AttributeProto::FLOAT);
        proto.set_f(std::get<float>(attribute.value));
        break;
      case AttributeKind::kInt:
        proto.set_type(onnx::AttributeProto::INT);
        proto.set_i(std::get<std::int64_t>(attribute.value));
        break;
      case AttributeKind::kString:
        proto.set_type(onnx::AttributeProto::STRING);
        proto.set_s(std::get<std::string>(attribute.value));
        break;
      case AttributeKind::kTensor:
        proto.set_type(onnx::AttributeProto::TENSOR);
        write_inline(std::get<Tensor>(attribute.value), *proto.mutable_t());
        break;
      case AttributeKind::kFloats:
        proto.set_type(onnx::AttributeProto::FLOATS);
        for (const float value : std::get<std::vector<float>>(attribute.value)) {
          proto.add_floats(value);
        }
        break;
      case AttributeKind::kInts:
        proto.set_type(onnx::AttributeProto::INTS);
        for (const std::int64_t value : std::get<std::vector<std::int64_t>>(attribute.value)) {
          proto.add_ints(value);
        }
        break;
      case AttributeKind::kStrings:
        proto.set_type(onnx::AttributeProto::STRINGS);
        for (const std::string& value : std::get<std::vector<std::string>>(attribute.value)) {
          proto.add_strings(value);
        }
        break;
      default:
        return Status::error(Code::kUnimplemented,
                             "%s cannot be written: control flow; fix the dimensions that its condition depends on",
                             describe(node).c_str());
    }
    return {};
  }

  static void write_inline(const Tensor& tensor, onnx::TensorProto& proto) {
    proto.set_data_type(static_cast<int>(tensor.dtype()));
    for (const std::int64_t dim : tensor.dims()) {
      proto.add_dims(dim);
    }
    proto.set_raw_data(tensor.data(), tensor.bytes());
  }

  Status write_external(const Tensor& tensor, onnx::TensorProto& proto) {
    static constexpr char kZeros[kExternalAlignment] = {};
    const std::uint64_t padding = (kExternalAlignment - external_->size() % kExternalAlignment) % kExternalAlignment;
    if (Status status = external_->write(kZeros, padding); !status.ok()) {
      return status;
    }
    proto.set_data_type(static_cast<int>(tensor.dtype()));
    for (const std::int64_t dim : tensor.dims()) {
      proto.add_dims(dim);
    }
    proto.set_data_location(onnx::TensorProto::EXTERNAL);
    const std::pair<const char*, std::string> entries[] = {{"location", external_name_},
                                                           {"offset", std::to_string(external_->size())},
                                                           {"length", std::to_string(tensor.bytes())}};
    for (const auto& [key, value] : entries) {
      auto* entry = proto.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return external_->write(tensor.data(), tensor.bytes());
  }

  Status write_constants(onnx::GraphProto& proto) {
    // An output that is a constant, or another name for a value: ONNX wants a node for each.
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const std::string& output = graph_.output_specs[i].name;
      if (name(graph_.outputs[i]) != output) {
        auto* node = proto.add_node();
        node->set_op_type("Identity");
        node->set_name(output + "_identity");
        node->add_input(name(graph_.outputs[i]));
        node->add_output(output);
      }
    }
    for (const ValueId id : constants_) {
      const Tensor& tensor = *graph_.value(id).constant;
      auto* initializer = proto.add_initializer();
      initializer->set_name(name(id));
      if (external_ == nullptr || tensor.bytes() < kSmallestExternal) {
        write_inline(tensor, *initializer);
      } else if (Status status = write_external(tensor, *initializer); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  const Graph& graph_;
  OutputFile* external_;
  const std::string external_name_;
  std::vector<std::string> names_;  // by value, in the file; empty: none yet
  std::unordered_set<std::string> taken_;
  std::vector<ValueId> constants_;  // in the order of their first use
};

std::uint64_t bytes_of_constants(const Graph& graph) {
  std::uint64_t bytes = 0;
  for (const Value& value : graph.values) {
    bytes += value.constant ? value.constant->bytes() : 0;
  }
  return bytes;
}

}  // namespace

Result<ExportResult> export_onnx(const Graph& graph, const std::string& path, const ExportOptions& options) {
  ExportResult result;
  const bool external = options.external_data || bytes_of_constants(graph) > options.inline_bytes;
  OutputFile model_file, data_file;
  Status status = model_file.open(path);
  if (status.ok() && external) {
    result.external_data = std::filesystem::path(path).filename().string() + ".data";
    status = data_file.open(path + ".data");
  }
  if (!status.ok()) {
    return status;
  }
  onnx::ModelProto model;
  status = Exporter(graph, external ? &data_file : nullptr, result.external_data).build(model);
  if (!status.ok()) {
    return status;
  }
  std::string bytes;
  if (!model.SerializeToString(&bytes)) {
    return Status::error(Code::kResourceExhausted, "the model is too large for one file; use external data");
  }
  model.Clear();
  status = model_file.write(bytes.data(), bytes.size());
  result.file_bytes = model_file.size() + (external ? data_file.size() : 0);
  if (status.ok() && external) {
    status = data_file.commit();
  }
  if (status.ok()) {
    status = model_file.commit();
  }
  return status.ok() ? Result<ExportResult>(std::move(result)) : Result<ExportResult>(status);
}

}  // namespace sluice::engine
