#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <filesystem>
#include <map>
#include <unordered_map>

#include "import/import.h"
#include "import/tensors.h"
#include "import/wire.h"

namespace sluice::engine {
namespace {

constexpr int kOldestIr = 3;
constexpr int kNewestIr = 10;  // what came after 8 are types that are refused by name

Status damaged(const std::string& what) {
  return Status::error(Code::kInvalidArgument, "%s; the model is damaged", what.c_str());
}

std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

// What the importers of a model's graph and of the branches in it share.
struct Import {
  TensorReader& tensors;
  const Limits& limits;
  std::unordered_map<std::string, int> opsets = {};
  std::uint64_t tensors_seen = 0, nodes_seen = 0;
};

// Of one graph. A branch of an If sees the names of the graphs around it, `outer`: what it reads of them becomes an
// input of the branch.
class Importer {
 public:
  explicit Importer(Import& shared, Importer* outer = nullptr) : shared_(shared), outer_(outer) {}

  Status import(const onnx::ModelProto& model) {
    Status status = check_model(model);
    for (const auto& entry : model.metadata_props()) {
      graph_.metadata.emplace_back(entry.key(), entry.value());
    }
    return status.ok() ? read_graph(model.graph()) : status;
  }

  Graph take() { return std::move(graph_); }

 private:
  Status check_model(const onnx::ModelProto& model) {
    if (!model.has_graph()) {
      return damaged("it holds no graph");
    }
    if (model.ir_version() < kOldestIr || model.ir_version() > kNewestIr) {
      return Status::error(Code::kUnimplemented,
                           "IR version %lld is not supported (%d to %d are); export the model with opset 13 to 17",
                           static_cast<long long>(model.ir_version()), kOldestIr, kNewestIr);
    }
    if (model.functions_size() > 0) {
      return Status::error(Code::kUnimplemented, "it defines functions of its own, such as '%.60s'; export it without",
                           model.functions(0).name().c_str());
    }
    if (model.graph().sparse_initializer_size() > 0) {
      return Status::error(Code::kUnimplemented, "sparse weights are not supported; store them dense");
    }
    for (const auto& set : model.opset_import()) {
      const auto version = static_cast<int>(std::clamp<std::int64_t>(set.version(), 0, 1 << 20));
      if (!shared_.opsets.emplace(canonical_domain(set.domain()), version).second) {
        return damaged("it names an operator set twice");
      }
    }
    const auto onnx = shared_.opsets.find("");
    // Below kOldestOpset, the registry takes the operators that opset 7 did not change.
    if (onnx != shared_.opsets.end() && (onnx->second < 1 || onnx->second > kNewestOpset)) {
      return Status::error(Code::kUnimplemented,
                           "opset %d is not supported (%d to %d are); export the model with one of these", onnx->second,
                           kOldestOpset, kNewestOpset);
    }
    return {};
  }

  Status read_graph(const onnx::GraphProto& graph) {
    shared_.nodes_seen += static_cast<std::uint64_t>(graph.node_size());
    if (shared_.nodes_seen > shared_.limits.nodes) {
      return Status::error(Code::kResourceExhausted, "it has %llu nodes, over the limit of %u",
                           static_cast<unsigned long long>(shared_.nodes_seen), shared_.limits.nodes);
    }
    graph_.name = graph.name();
    Status status = read_initializers(graph);
    if (status.ok()) {
      status = read_inputs(graph);
    }
    for (int i = 0; i < graph.node_size() && status.ok(); ++i) {
      status = read_node(graph.node(i));
    }
    return status.ok() ? read_outputs(graph) : status;
  }

  // The value of a name, or kNoValue.
  ValueId find(const std::string& name) {
    if (const auto found = names_.find(name); found != names_.end()) {
      return found->second;
    }
    const ValueId around = outer_ == nullptr ? kNoValue : outer_->find(name);
    if (around == kNoValue) {
      return kNoValue;
    }
    ValueId id = kNoValue;
    if (outer_->graph_.is_constant(around)) {
      id = graph_.add_constant(name, *outer_->graph_.value(around).constant);
    } else {
      id = graph_.add_value(name);
      graph_.inputs.push_back(id);
      graph_.input_specs.emplace_back().name = name;
      captured_.push_back(around);
    }
    names_.emplace(name, id);
    return id;
  }

  Status define(const std::string& name, ValueId id) {
    if (name.empty() || !names_.emplace(name, id).second) {
      return damaged(fmt::format("the value '{:.80}' is defined twice", name));
    }
    return {};
  }

  Status add_constant(const std::string& name, Tensor tensor) {
    if (++shared_.tensors_seen > shared_.limits.tensors) {
      return Status::error(Code::kResourceExhausted, "it has more tensors than the limit of %u",
                           shared_.limits.tensors);
    }
    return define(name, graph_.add_constant(name, std::move(tensor)));
  }

  Status read_initializers(const onnx::GraphProto& graph) {
    for (const auto& proto : graph.initializer()) {
      auto tensor = shared_.tensors.read(proto);
      if (!tensor.ok()) {
        return tensor.status();
      }
      if (Status status = add_constant(proto.name(), std::move(*tensor)); !status.ok()) {
        return status;
      }
    }
    return {};
  }

  static Result<TensorSpec> read_spec(const onnx::ValueInfoProto& info) {
    TensorSpec spec;
    spec.name = info.name();
    if (info.type().has_tensor_type()) {
      const auto& type = info.type().tensor_type();
      spec.dtype = static_cast<DType>(type.elem_type() >= 0 && type.elem_type() <= 16 ? type.elem_type() : 0);
      if (dtype_bytes(spec.dtype) == 0) {
        return Status::error(Code::kUnimplemented, "'%.80s' is a tensor of %s, which is not supported",
                             spec.name.c_str(), dtype_name(spec.dtype));
      }
      if (type.shape().dim_size() > kMaxRank) {
        return Status::error(Code::kUnimplemented, "'%.80s' has %d dimensions; at most %d are supported",
                             spec.name.c_str(), type.shape().dim_size(), kMaxRank);
      }
      spec.has_rank = type.has_shape();
      for (const auto& dim : type.shape().dim()) {
        spec.dims.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
        spec.symbols.push_back(dim.dim_param());
      }
      return spec;
    }
    return Status::error(
        Code::kUnimplemented,
        "'%.80s' is no dense tensor but a sequence, map, optional or sparse tensor; export it as a tensor",
        spec.name.c_str());
  }

  Status read_inputs(const onnx::GraphProto& graph) {
    for (const auto& info : graph.input()) {
      if (names_.contains(info.name())) {  // files before IR 4 name initializers as inputs too
        continue;
      }
      if (outer_ != nullptr) {
        return damaged(fmt::format("a branch of an If has the input '{:.80}'", info.name()));
      }
      auto spec = read_spec(info);
      if (!spec.ok()) {
        return spec.status();
      }
      const ValueId id = graph_.add_value(info.name(), {spec->dtype, {}});
      if (Status status = define(info.name(), id); !status.ok()) {
        return status;
      }
      graph_.inputs.push_back(id);
      graph_.input_specs.push_back(std::move(*spec));
    }
    return {};
  }

  Status read_outputs(const onnx::GraphProto& graph) {
    for (const auto& info : graph.output()) {
      const ValueId id = find(info.name());
      if (id == kNoValue) {
        return damaged(fmt::format("nothing computes the output '{:.80}'", info.name()));
      }
      const bool untyped = outer_ != nullptr && info.type().value_case() == onnx::TypeProto::VALUE_NOT_SET;
      Result<TensorSpec> spec = untyped ? Result<TensorSpec>(TensorSpec()) : read_spec(info);  // branches need not say
      if (!spec.ok()) {
        return spec.status();
      }
      Value& value = graph_.value(id);
      if (value.type.dtype == DType::kUndefined) {
        value.type.dtype = spec->dtype;
      } else if (spec->dtype != DType::kUndefined && value.type.dtype != spec->dtype) {
        return damaged(fmt::format("the output '{:.80}' is {}, not {}", info.name(), dtype_name(value.type.dtype),
                                   dtype_name(spec->dtype)));
      }
      graph_.outputs.push_back(id);
      graph_.output_specs.push_back(std::move(*spec));
    }
    return graph_.outputs.empty() ? damaged("it has no outputs") : Status();
  }

  Status read_node(const onnx::NodeProto& proto) {
    Node node;
    node.name = proto.name();
    node.domain = canonical_domain(proto.domain());
    node.op = proto.op_type();
    if (node.domain == kOwnDomain) {
      return Status::error(Code::kInvalidArgument, "node '%.80s' names the domain '%s', which files cannot use",
                           node.name.c_str(), node.domain.c_str());
    }
    const auto opset = shared_.opsets.find(node.domain);
    if (opset == shared_.opsets.end()) {
      return damaged(
          fmt::format("node '{:.60}' uses the domain '{:.60}', of which it names no version", node.name, node.domain));
    }
    node.opset = opset->second;
    for (const std::string& name : proto.input()) {
      const ValueId id = name.empty() ? kNoValue : find(name);
      if (!name.empty() && id == kNoValue) {
        return damaged(fmt::format("{} reads '{:.80}', which no node before it computes", describe(node), name));
      }
      node.inputs.push_back(id);
    }
    if (Status status = read_attributes(proto, node); !status.ok()) {
      return status;
    }
    if (node.domain.empty() && node.op == "Constant") {
      return read_constant(proto, node);
    }
    for (const std::string& name : proto.output()) {
      node.outputs.push_back(name.empty() ? kNoValue : graph_.add_value(name));
      if (!name.empty()) {
        if (Status status = define(name, node.outputs.back()); !status.ok()) {
          return status;
        }
      }
    }
    graph_.nodes.push_back(std::move(node));
    return {};
  }

  // What the branches of an If read of this graph are inputs of the node, in the order that Node::get_graph says.
  using Captured = std::map<std::string, std::vector<ValueId>>;

  Status read_branch(const onnx::AttributeProto& proto, Node& node, Captured& captured) {
    if (!node.domain.empty() || node.op != "If") {
      return Status::error(Code::kUnimplemented,
                           "%s: control flow but If is not supported; export the model without it",
                           describe(node).c_str());
    }
    Importer branch(shared_, this);
    if (Status status = branch.read_graph(proto.g()); !status.ok()) {
      return status;
    }
    captured[proto.name()] = branch.captured_;
    node.set(proto.name(), std::make_shared<const Graph>(branch.take()));
    return {};
  }

  Status read_attributes(const onnx::NodeProto& proto, Node& node) {
    Captured captured;
    for (const auto& attribute : proto.attribute()) {
      if (node.has(attribute.name())) {
        return damaged(fmt::format("{} has the attribute '{:.60}' twice", describe(node), attribute.name()));
      }
      switch (attribute.type()) {
        case onnx::AttributeProto::FLOAT:
          node.set(attribute.name(), attribute.f());
          break;
        case onnx::AttributeProto::INT:
          node.set(attribute.name(), attribute.i());
          break;
        case onnx::AttributeProto::STRING:
          node.set(attribute.name(), attribute.s());
          break;
        case onnx::AttributeProto::FLOATS:
          node.set(attribute.name(), std::vector<float>(attribute.floats().begin(), attribute.floats().end()));
          break;
        case onnx::AttributeProto::INTS:
          node.set(attribute.name(), std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end()));
          break;
        case onnx::AttributeProto::STRINGS:
          node.set(attribute.name(), std::vector<std::string>(attribute.strings().begin(), attribute.strings().end()));
          break;
        case onnx::AttributeProto::TENSOR: {
          auto tensor = shared_.tensors.read(attribute.t());
          if (!tensor.ok()) {
            return Status::error(tensor.status().code(), "%s, attribute '%.40s': %s", describe(node).c_str(),
                                 attribute.name().c_str(), tensor.status().message());
          }
          node.set(attribute.name(), std::move(*tensor));
          break;
        }
        case onnx::AttributeProto::GRAPH:
          if (Status status = read_branch(attribute, node, captured); !status.ok()) {
            return status;
          }
          break;
        default:
          return Status::error(Code::kUnimplemented,
                               "%s: attribute '%.40s' is of a kind (%d) that is not supported; export the model "
                               "without it",
                               describe(node).c_str(), attribute.name().c_str(), static_cast<int>(attribute.type()));
      }
    }
    if (!captured.empty() && node.inputs.size() != 1) {
      return damaged(fmt::format("{} has {} inputs instead of a condition", describe(node), node.inputs.size()));
    }
    for (const char* name : {"then_branch", "else_branch"}) {
      node.inputs.insert(node.inputs.end(), captured[name].begin(), captured[name].end());
    }
    return {};
  }

  template <class T>
  static Result<Tensor> tensor_of(DType dtype, const Dims& dims, const T* values) {
    auto tensor = Tensor::allocate(dtype, dims);
    if (tensor.ok() && tensor->bytes() > 0) {
      std::memcpy(tensor->mutable_data(), values, tensor->bytes());
    }
    return tensor;
  }

  // Constants become values at once, so that passes see weights of either spelling alike.
  Status read_constant(const onnx::NodeProto& proto, const Node& node) {
    if (node.attributes.size() != 1 || proto.output_size() != 1 || proto.input_size() != 0) {
      return damaged(fmt::format("{} needs one attribute and one output", describe(node)));
    }
    const Attribute& attribute = node.attributes.front();
    Result<Tensor> tensor =
        Status::error(Code::kUnimplemented, "%s: attribute '%.40s' is not supported; export the constant as a tensor",
                      describe(node).c_str(), attribute.name.c_str());
    if (const Tensor* value = node.get_tensor("value")) {
      tensor = *value;
    } else if (node.opset >= 12) {
      if (const auto* f = std::get_if<float>(&attribute.value); f != nullptr && attribute.name == "value_float") {
        tensor = tensor_of(DType::kFloat, {}, f);
      } else if (const auto* i = std::get_if<std::int64_t>(&attribute.value);
                 i != nullptr && attribute.name == "value_int") {
        tensor = tensor_of(DType::kInt64, {}, i);
      } else if (const auto* fs = std::get_if<std::vector<float>>(&attribute.value);
                 fs != nullptr && attribute.name == "value_floats") {
        tensor = tensor_of(DType::kFloat, {static_cast<std::int64_t>(fs->size())}, fs->data());
      } else if (const auto* is = std::get_if<std::vector<std::int64_t>>(&attribute.value);
                 is != nullptr && attribute.name == "value_ints") {
        tensor = tensor_of(DType::kInt64, {static_cast<std::int64_t>(is->size())}, is->data());
      }
    }
    return tensor.ok() ? add_constant(proto.output(0), std::move(*tensor)) : tensor.status();
  }

  Import& shared_;
  Importer* outer_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> names_;
  std::vector<ValueId> captured_;  // of the graph around; one an input
};

Status parse(std::string_view bytes, const Limits& limits, onnx::ModelProto& model) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(static_cast<int>(bytes.size()));
  coded.SetRecursionLimit(static_cast<int>(limits.depth) + 1);
  if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return Status::error(Code::kInvalidArgument, "it is no ONNX model, or it is damaged or truncated");
  }
  return {};
}

Result<Graph> import_file(const std::string& path, const Limits& limits) {
  auto file = MappedFile::open(path, limits.file_bytes);
  if (!file.ok()) {
    return file.status();
  }
  auto slim = slim_model((*file)->bytes(), limits);
  if (!slim.ok()) {
    return slim.status();
  }
  onnx::ModelProto model;
  if (Status status = parse(slim->proto, limits, model); !status.ok()) {
    return status;
  }
  std::string().swap(slim->proto);
  const std::string directory = std::filesystem::path(path).parent_path().string();
  TensorReader tensors(directory.empty() ? "." : directory, *file, *slim, limits);
  Import shared{tensors, limits};
  Importer importer(shared);
  if (Status status = importer.import(model); !status.ok()) {
    return status;
  }
  return importer.take();
}

}  // namespace

Result<Graph> import_onnx(const std::string& path, const Limits& limits) {
  auto graph = import_file(path, limits);
  if (!graph.ok()) {
    const std::string file = std::filesystem::path(path).filename().string();
    return Status::error(graph.status().code(), "model '%.60s': %s", file.c_str(), graph.status().message());
  }
  return graph;
}

}  // namespace sluice::engine
