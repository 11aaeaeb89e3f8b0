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
  struct OutputBinding {
    void* data = nullptr;
    std::size_t capacity = 0;
  };
  std::vector<Binding> bindings;
  std::vector<OutputBinding> output_bindings;
  std::list<CompiledProgram> programs;  // the one used last is first
  bool signature_changed = true;        // since the program in front was chosen
  bool has_run = false;

  Result<std::size_t> output_index(std::string_view name) const;
  Status compile();
  Status choose();
  Status place_outputs();
  Status run(StepObserver* observer);
};

namespace {

// Tells a caller what a program tells.
class Observer final : public StepObserver {
 public:
  Observer(const SessionImpl& session, const std::function<void(const StepView&)>& tell)
      : session_(session), tell_(tell) {}

  void done(std::size_t step, std::uint64_t ns, std::span<const TensorRef> outputs) override {
    const std::vector<StepInfo>& steps = session_.programs.front().program->info().steps;
    const StepInfo& info = steps[step];
    results_.clear();
    for (const TensorRef& output : outputs) {
      if (!output.present()) {
        continue;
      }
      const std::span<const std::int64_t> dims(output.dims, static_cast<std::size_t>(output.rank));
      const std::string& name = info.output_names[results_.size()];
      const std::size_t bytes =
          static_cast<std::size_t>(element_count({dims.begin(), dims.end()})) * dtype_bytes(output.dtype);
      results_.push_back({name, {output.dtype, dims, name.empty() ? nullptr : output.data, name.empty() ? 0 : bytes}});
    }
    tell_({step, steps.size(), info.name, info.op, info.implementation, ns, results_});
  }

 private:
  const SessionImpl& session_;
  const std::function<void(const StepView&)>& tell_;
  std::vector<StepView::Result> results_;
};

}  // namespace

Session::Session() : impl_(std::make_unique<SessionImpl>()) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<Model> model) {
  auto session = std::make_unique<Session>();
  session->impl_->impl = model->impl_.get();
  session->impl_->bindings.resize(model->inputs().size());
  session->impl_->output_bindings.resize(model->outputs().size());
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

Result<std::size_t> SessionImpl::output_index(std::string_view name) const {
  const auto& specs = impl->graph.output_specs;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) {
      return i;
    }
  }
  return Status::error(Code::kNotFound, "the model has no output '%.*s'; its first is '%.80s'",
                       static_cast<int>(std::min<std::size_t>(name.size(), 80)), name.data(),
                       specs.empty() ? "" : specs.front().name.c_str());
}

Status Session::bind_output(std::string_view name, void* data, std::size_t capacity) {
  auto index = impl_->output_index(name);
  if (!index.ok()) {
    return index.status();
  }
  const TensorSpec& spec = impl_->impl->graph.output_specs[*index];
  const std::size_t alignment = dtype_bytes(spec.dtype);
  if (alignment != 0 && reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    return Status::error(Code::kInvalidArgument, "output '%.80s': the memory is not aligned to %zu bytes",
                         spec.name.c_str(), alignment);
  }
  impl_->output_bindings[*index] = {data, data == nullptr ? 0 : capacity};
  impl_->has_run = false;
  return {};
}

Status SessionImpl::compile() {
  CompiledProgram compiled;
  for (const Binding& binding : bindings) {
    compiled.dims.push_back(binding.dims);
    compiled.values.push_back(binding.values);
  }
  auto graph = specialize_for(*impl, compiled.dims, compiled.values, compiled.passes);
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
  auto program = impl->device->compile(*graph, impl->packed, impl->reference_kernels());
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

Status SessionImpl::place_outputs() {
  CompiledProgram& compiled = programs.front();
  for (std::size_t i = 0; i < output_bindings.size(); ++i) {
    const OutputBinding& binding = output_bindings[i];
    Tensor& own = compiled.outputs[i];
    if (binding.data != nullptr && own.bytes() > binding.capacity) {
      return Status::error(Code::kInvalidArgument, "output '%.80s' takes %zu bytes, and the memory bound to it has %zu",
                           impl->graph.output_specs[i].name.c_str(), own.bytes(), binding.capacity);
    }
    compiled.output_pointers[i] = binding.data != nullptr ? binding.data : own.mutable_data();
  }
  return {};
}

Status Session::run() { return impl_->run(nullptr); }

Status Session::run(const std::function<void(const StepView&)>& observer) {
  Observer relay(*impl_, observer);
  return impl_->run(&relay);
}

Status SessionImpl::run(StepObserver* observer) {
  has_run = false;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    if (!bindings[i].bound) {
      return Status::error(Code::kFailedPrecondition, "the input '%.80s' is not set",
                           impl->graph.input_specs[i].name.c_str());
    }
  }
  if (signature_changed) {
    if (Status status = choose(); !status.ok()) {
      return status;
    }
  }
  if (Status status = place_outputs(); !status.ok()) {
    return status;
  }
  CompiledProgram& compiled = programs.front();
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    compiled.input_pointers[i] = bindings[i].data;
  }
  Status status = compiled.program->run(compiled.input_pointers, compiled.output_pointers, observer);
  has_run = status.ok();
  return status;
}

Result<TensorView> Session::output(std::string_view name) const {
  auto index = impl_->output_index(name);
  return index.ok() ? output(*index) : Result<TensorView>(index.status());
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
  return TensorView{tensor.dtype(), tensor.dims(), impl_->programs.front().output_pointers[index], tensor.bytes()};
}

std::size_t Session::operators_after() const {
  return impl_->programs.empty() ? 0 : impl_->programs.front().program->info().steps.size();
}

std::size_t Session::arena_bytes() const {
  return impl_->programs.empty() ? 0 : impl_->programs.front().program->info().arena_bytes;
}

std::vector<PassReport> Session::passes() const {
  return impl_->programs.empty() ? std::vector<PassReport>{} : impl_->programs.front().passes;
}

}  // namespace sluice::engine
