#include <algorithm>
#include <list>

#include "model.h"

namespace sluice::engine {

struct SessionImpl {
  struct Binding {
    Dims dims;
    std::vector<std::byte> values;  // of an input that decides shapes
    const void* data = nullptr;
    bool bound = false;
  };

  std::shared_ptr<Model> model;
  const ModelImpl* impl = nullptr;
  std::vector<Binding> bindings;
  std::list<CompiledProgram> programs;  // the one used last is first
  bool signature_changed = true;        // since the program in front was chosen
  bool has_run = false;

  Status compile();
  Status choose();
};

Session::Session() : impl_(std::make_unique<SessionImpl>()) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<Model> model) {
  auto session = std::make_unique<Session>();
  session->impl_->impl = model->impl_.get();
  session->impl_->bindings.resize(model->inputs().size());
  session->impl_->model = std::move(model);
  return session;
}

Status Session::set_input(std::string_view name, DType dtype, std::span<const std::int64_t> dims, const void* data) {
  const auto& specs = impl_->impl->graph.input_specs;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  const std::string_view shown = name.substr(0, 80);
  const int width = static_cast<int>(shown.size());
  if (found == specs.end()) {
    return Status::error(Code::kNotFound, "the model has no input '%.*s'; its first is '%.80s'", width, shown.data(),
                         specs.empty() ? "" : specs.front().name.c_str());
  }
  if (dtype != found->dtype) {
    return Status::error(Code::kInvalidArgument, "input '%.*s' is %s, not %s", width, shown.data(),
                         dtype_name(found->dtype), dtype_name(dtype));
  }
  bool fits = !found->has_rank || dims.size() == found->dims.size();
  for (std::size_t i = 0; fits && i < dims.size(); ++i) {
    fits = dims[i] >= 0 && (!found->has_rank || found->dims[i] < 0 || found->dims[i] == dims[i]);
  }
  if (!fits) {
    return Status::error(Code::kInvalidArgument, "input '%.*s' has the shape %s, which %s does not fit (-1 is any)",
                         width, shown.data(), to_string(found->dims).c_str(),
                         to_string(Dims(dims.begin(), dims.end())).c_str());
  }
  SessionImpl::Binding& binding = impl_->bindings[static_cast<std::size_t>(found - specs.begin())];
  const bool new_shape = !std::equal(dims.begin(), dims.end(), binding.dims.begin(), binding.dims.end());
  if (new_shape || !binding.bound) {
    auto bytes = tensor_bytes(dtype, Dims(dims.begin(), dims.end()), impl_->impl->options.limits.tensor_bytes);
    if (!bytes.ok()) {
      return bytes.status();
    }
    binding.dims.assign(dims.begin(), dims.end());
    impl_->signature_changed = true;
  }
  const std::int64_t elements = element_count(binding.dims);
  if (data == nullptr && elements > 0) {
    binding.bound = false;
    return Status::error(Code::kInvalidArgument, "input '%.*s': no data", width, shown.data());
  }
  binding.data = data;
  binding.bound = true;
  if (found->decides_shapes) {
    if (elements > impl_->impl->options.limits.shape_input_elements) {
      binding.bound = false;
      return Status::error(Code::kResourceExhausted,
                           "input '%.*s' decides shapes and has %lld values, over the limit of %u", width, shown.data(),
                           static_cast<long long>(elements), impl_->impl->options.limits.shape_input_elements);
    }
    const auto* bytes = static_cast<const std::byte*>(data);
    const std::size_t size = static_cast<std::size_t>(elements) * dtype_bytes(dtype);
    if (!std::equal(binding.values.begin(), binding.values.end(), bytes, bytes + size)) {
      binding.values.assign(bytes, bytes + size);
      impl_->signature_changed = true;
    }
  }
  return {};
}

Status SessionImpl::compile() {
  CompiledProgram compiled;
  for (const Binding& binding : bindings) {
    compiled.dims.push_back(binding.dims);
    compiled.values.push_back(binding.values);
  }
  auto graph = specialize_for(*impl, compiled.dims, compiled.values);
  if (!graph.ok()) {
    return graph.status();
  }
  for (const ValueId id : graph->outputs) {
    auto output = Tensor::allocate(graph->value(id).type.dtype, graph->value(id).type.dims);
    if (!output.ok()) {
      return output.status();
    }
    compiled.outputs.push_back(std::move(*output));
    compiled.output_pointers.push_back(compiled.outputs.back().mutable_data());
  }
  compiled.input_pointers.resize(bindings.size());
  auto program = impl->device->compile(*graph, impl->packed);
  if (!program.ok()) {
    return program.status();
  }
  compiled.program = std::move(*program);
  if (programs.size() >= std::max<std::size_t>(1, impl->options.cached_programs)) {
    programs.pop_back();
  }
  programs.push_front(std::move(compiled));
  return {};
}

// Brings the program for the bound signature to the front.
Status SessionImpl::choose() {
  const auto fits = [&](const CompiledProgram& program) {
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      if (program.dims[i] != bindings[i].dims || program.values[i] != bindings[i].values) {
        return false;
      }
    }
    return true;
  };
  const auto found = std::find_if(programs.begin(), programs.end(), fits);
  if (found != programs.end()) {
    programs.splice(programs.begin(), programs, found);
  } else if (Status status = compile(); !status.ok()) {
    return status;
  }
  signature_changed = false;
  return {};
}

Status Session::run() {
  SessionImpl& self = *impl_;
  self.has_run = false;
  for (std::size_t i = 0; i < self.bindings.size(); ++i) {
    if (!self.bindings[i].bound) {
      return Status::error(Code::kFailedPrecondition, "the input '%.80s' is not set",
                           self.impl->graph.input_specs[i].name.c_str());
    }
  }
  if (self.signature_changed) {
    if (Status status = self.choose(); !status.ok()) {
      return status;
    }
  }
  CompiledProgram& compiled = self.programs.front();
  for (std::size_t i = 0; i < self.bindings.size(); ++i) {
    compiled.input_pointers[i] = self.bindings[i].data;
  }
  Status status = compiled.program->run(compiled.input_pointers, compiled.output_pointers, nullptr);
  self.has_run = status.ok();
  return status;
}

Result<TensorView> Session::output(std::string_view name) const {
  const auto& specs = impl_->impl->graph.output_specs;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) {
      return output(i);
    }
  }
  return Status::error(Code::kNotFound, "the model has no output '%.*s'; its first is '%.80s'",
                       static_cast<int>(std::min<std::size_t>(name.size(), 80)), name.data(),
                       specs.front().name.c_str());
}

Result<TensorView> Session::output(std::size_t index) const {
  if (index >= impl_->impl->graph.outputs.size()) {
    return Status::error(Code::kNotFound, "the model has %zu outputs, no number %zu", impl_->impl->graph.outputs.size(),
                         index);
  }
  if (!impl_->has_run) {
    return Status::error(Code::kFailedPrecondition, "nothing has run yet, or the last run failed");
  }
  const Tensor& tensor = impl_->programs.front().outputs[index];
  return TensorView{tensor.dtype(), tensor.dims(), tensor.data(), tensor.bytes()};
}

std::size_t Session::operators_after() const {
  return impl_->programs.empty() ? 0 : impl_->programs.front().program->info().steps.size();
}

std::size_t Session::arena_bytes() const {
  return impl_->programs.empty() ? 0 : impl_->programs.front().program->info().arena_bytes;
}

}  // namespace sluice::engine
