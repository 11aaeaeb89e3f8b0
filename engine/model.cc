#include "model.h"

#include "compile/branches.h"
#include "compile/specialize.h"
#include "import/import.h"
#include "operators/registry.h"
#include "passes/pass.h"

namespace sluice::engine {

namespace {

// The branches of control flow are graphs of their own, and improved like the graph around them.
Status run_model_passes(Graph& graph, const PassContext& context, const Options& options,
                        std::vector<PassReport>* reports) {
  Status status = run_passes(graph, Pass::Stage::kModel, context, options.passes_off, options.print_passes, reports);
  for (Node& node : graph.nodes) {
    for (const char* name : kBranches) {
      if (const Graph* branch = node.get_graph(name); branch != nullptr && status.ok()) {
        auto improved = std::make_shared<Graph>(*branch);
        status = run_model_passes(*improved, context, options, nullptr);
        node.set(name, std::shared_ptr<const Graph>(std::move(improved)));
      }
    }
  }
  return status;
}

}  // namespace

Model::Model() : impl_(std::make_unique<ModelImpl>()) {}
Model::~Model() = default;

Result<std::shared_ptr<Model>> Model::load(const std::string& path, const Options& options) {
  auto device = open_device(options.device, options.threads);
  if (!device.ok()) {
    return device.status();
  }
  auto graph = import_onnx(path, options.limits);
  if (!graph.ok()) {
    return graph.status();
  }
  auto model = std::make_shared<Model>();
  ModelImpl& impl = *model->impl_;
  impl.options = options;
  impl.device = std::move(*device);
  impl.graph = std::move(*graph);
  impl.operators_before = impl.graph.nodes.size();
  if (Status status = bind_schemas(impl.graph); !status.ok()) {
    return status;
  }
  const std::vector<bool> shape_inputs = find_shape_inputs(impl.graph);
  for (std::size_t i = 0; i < shape_inputs.size(); ++i) {
    impl.graph.input_specs[i].decides_shapes = shape_inputs[i];
  }
  const PassContext context{options.precision, impl.device->name(), options.fp32_weights};
  if (Status status = run_model_passes(impl.graph, context, options, &impl.passes); !status.ok()) {
    return status;
  }
  return model;
}

const std::vector<TensorSpec>& Model::inputs() const { return impl_->graph.input_specs; }
const std::vector<TensorSpec>& Model::outputs() const { return impl_->graph.output_specs; }
const Options& Model::options() const { return impl_->options; }
int Model::threads() const { return impl_->device->threads(); }
std::size_t Model::operators_before() const { return impl_->operators_before; }
const std::vector<PassReport>& Model::passes() const { return impl_->passes; }

Result<Graph> specialize_for(const ModelImpl& model, const std::vector<Dims>& dims,
                             const std::vector<std::vector<std::byte>>& values, std::vector<PassReport>& passes) {
  Graph graph = model.graph;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    Value& value = graph.value(graph.inputs[i]);
    value.type.dims = dims[i];
    value.has_shape = true;
    if (graph.input_specs[i].decides_shapes) {
      auto constant = Tensor::allocate(value.type.dtype, dims[i]);
      if (!constant.ok()) {
        return constant.status();
      }
      std::copy(values[i].begin(), values[i].end(), constant->mutable_data());
      value.constant = std::move(*constant);
    }
  }
  if (Status status = specialize(graph, model.options.limits.memory_bytes); !status.ok()) {
    return status;
  }
  const PassContext context{model.options.precision, model.device->name(), model.options.fp32_weights};
  if (Status status = run_passes(graph, Pass::Stage::kProgram, context, model.options.passes_off,
                                 model.options.print_passes, &passes);
      !status.ok()) {
    return status;
  }
  return graph;
}

}  // namespace sluice::engine
