#include "cpu/program.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "cpu/kernels.h"
#include "cpu/memory_plan.h"
#include "sluice/base/clock.h"

namespace sluice::engine::cpu {

// Decides where each value lies, and writes that into the program's steps.
class Builder {
 public:
  Builder(const Graph& graph, PackedWeights& packed, int threads)
      : graph_(graph), packed_(packed), program_(new CpuProgram), place_(graph.values.size()) {
    program_->threads_ = threads;
  }

  Result<std::unique_ptr<Program>> build() {
    place_arguments();
    if (Status status = make_steps(); !status.ok()) {
      return status;
    }
    if (Status status = lay_out(); !status.ok()) {
      return status;
    }
    return std::unique_ptr<Program>(std::move(program_));
  }

 private:
  enum class Kind : std::uint8_t { kUnused, kInput, kOutput, kConstant, kArena };
  struct Place {
    Kind kind = Kind::kUnused;
    std::size_t index = 0;  // graph input, graph output, lifetime
  };

  std::size_t bytes_of(ValueId id) const {
    const TensorType& type = graph_.value(id).type;
    return static_cast<std::size_t>(element_count(type.dims)) * dtype_bytes(type.dtype);
  }
  Place& place(ValueId id) { return place_[static_cast<std::size_t>(id)]; }

  void place_arguments() {
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (!graph_.is_constant(graph_.inputs[i])) {
        place(graph_.inputs[i]) = {Kind::kInput, i};
      }
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      if (place(id).kind == Kind::kUnused && !graph_.is_constant(id)) {
        place(id) = {Kind::kOutput, i};
      }
    }
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      if (graph_.values[i].constant) {
        place_[i] = {Kind::kConstant, 0};
      }
    }
  }

  // A view costs nothing where the result is no argument of the caller: it lies where its input lies.
  bool alias(const Node& node) {
    if (!node.schema->definition.view || node.outputs.size() != 1 || place(node.outputs[0]).kind != Kind::kUnused) {
      return false;
    }
    place(node.outputs[0]) = place(node.inputs[0]);
    if (place(node.inputs[0]).kind == Kind::kConstant) {
      aliased_constants_[node.outputs[0]] = constant_of(node.inputs[0]);
    }
    return true;
  }

  ValueId constant_of(ValueId id) const {
    const auto found = aliased_constants_.find(id);
    return found == aliased_constants_.end() ? id : found->second;
  }

  Status make_steps() {
    for (const Node& node : graph_.nodes) {
      if (alias(node)) {
        continue;
      }
      KernelContext context(graph_, node, &packed_, program_->threads_);
      auto choice = Kernels::get().make(context);
      if (!choice.ok()) {
        return choice.status();
      }
      const std::size_t step = nodes_.size();
      nodes_.push_back(&node);
      released_.push_back(context.released_inputs());
      StepInfo info{node.name, node.op, choice->implementation, {}, {}};
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) {
          if (place(id).kind == Kind::kUnused) {
            place(id) = {Kind::kArena, lifetimes_.size()};
            lifetimes_.push_back({bytes_of(id), step, step});
          }
          info.outputs.push_back(graph_.value(id).type);
          info.output_names.push_back(graph_.value(id).name);
        }
      }
      for (const ValueId id : node.inputs) {
        if (id != kNoValue && place(id).kind == Kind::kArena) {
          lifetimes_[place(id).index].last = step;
        }
      }
      const std::size_t scratch = choice->kernel->scratch_bytes();
      scratch_.push_back(scratch == 0 ? std::nullopt : std::optional(lifetimes_.size()));
      if (scratch > 0) {
        lifetimes_.push_back({scratch, step, step});
      }
      program_->info_.steps.push_back(std::move(info));
      program_->steps_.push_back({std::move(choice->kernel), {}, {}, nullptr});
    }
    return {};
  }

  Status lay_out() {
    plan_ = plan_memory(lifetimes_);
    void* arena = std::aligned_alloc(kArenaAlignment, std::max(plan_.arena_bytes, kArenaAlignment));
    if (arena == nullptr) {
      return Status::error(Code::kResourceExhausted, "no memory for an arena of %zu bytes; use smaller inputs",
                           plan_.arena_bytes);
    }
    program_->arena_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(arena), std::free);
    program_->info_.arena_bytes = plan_.arena_bytes;
    for (const Value& value : graph_.values) {
      program_->dims_.push_back(value.type.dims);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      CpuProgram::Step& step = program_->steps_[i];
      for (std::size_t k = 0; k < nodes_[i]->inputs.size(); ++k) {
        const bool released = std::count(released_[i].begin(), released_[i].end(), k) != 0;
        auto ref = reference(nodes_[i]->inputs[k], released, {i, false, k, false, 0});
        if (!ref.ok()) {
          return ref.status();
        }
        step.inputs.push_back(*ref);
      }
      for (std::size_t k = 0; k < nodes_[i]->outputs.size(); ++k) {
        auto ref = reference(nodes_[i]->outputs[k], false, {i, true, k, false, 0});
        if (!ref.ok()) {
          return ref.status();
        }
        step.outputs.push_back(*ref);
      }
      if (scratch_[i]) {
        step.scratch = program_->arena_.get() + plan_.offsets[*scratch_[i]];
      }
    }
    return copy_arguments();
  }

  Result<const std::byte*> hold_constant(ValueId id) {
    const ValueId root = constant_of(id);
    if (const auto found = held_.find(root); found != held_.end()) {
      return found->second;
    }
    auto tensor = graph_.value(root).constant->to_aligned();
    if (!tensor.ok()) {
      return tensor.status();
    }
    program_->info_.constant_bytes += tensor->bytes();
    program_->constants_.push_back(std::move(*tensor));
    return held_[root] = program_->constants_.back().data();
  }

  Result<TensorRef> reference(ValueId id, bool released, CpuProgram::Patch patch) {
    if (id == kNoValue) {
      return TensorRef{};
    }
    const Dims& dims = program_->dims_[static_cast<std::size_t>(id)];
    TensorRef ref{graph_.value(id).type.dtype, static_cast<std::int32_t>(dims.size()), dims.data(), nullptr};
    const Place at = place(id);
    if (at.kind == Kind::kArena) {
      ref.data = program_->arena_.get() + plan_.offsets[at.index];
    } else if (at.kind == Kind::kConstant && !released) {
      auto data = hold_constant(id);
      if (!data.ok()) {
        return data.status();
      }
      ref.data = const_cast<std::byte*>(*data);
    } else if (at.kind == Kind::kInput || at.kind == Kind::kOutput) {
      patch.from_output = at.kind == Kind::kOutput;
      patch.argument = at.index;
      program_->patches_.push_back(patch);
    }
    return ref;
  }

  // Outputs that are inputs or constants, and outputs that are named twice.
  Status copy_arguments() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      const Place at = place(id);
      CpuProgram::Copy copy{i, CpuProgram::Source::kOutput, at.index, nullptr, bytes_of(id)};
      if (at.kind == Kind::kConstant) {
        auto data = hold_constant(id);
        if (!data.ok()) {
          return data.status();
        }
        copy.source = CpuProgram::Source::kConstant;
        copy.constant = *data;
      } else if (at.kind == Kind::kInput) {
        copy.source = CpuProgram::Source::kInput;
      } else if (at.kind != Kind::kOutput || at.index == i) {
        continue;
      }
      program_->copies_.push_back(copy);
    }
    return {};
  }

  const Graph& graph_;
  PackedWeights& packed_;
  std::unique_ptr<CpuProgram> program_;
  std::vector<Place> place_;                      // by value
  std::map<ValueId, ValueId> aliased_constants_;  // view -> what it views
  std::map<ValueId, const std::byte*> held_;
  std::vector<const Node*> nodes_;  // of each step
  std::vector<std::vector<std::size_t>> released_;
  std::vector<std::optional<std::size_t>> scratch_;  // of each step: a lifetime
  std::vector<Lifetime> lifetimes_;
  MemoryPlan plan_;
};

Result<std::unique_ptr<Program>> CpuProgram::compile(const Graph& graph, PackedWeights& packed, int threads) {
  return Builder(graph, packed, threads).build();
}

Status CpuProgram::run(std::span<const void* const> inputs, std::span<void* const> outputs, StepObserver* observer) {
  for (const Patch& patch : patches_) {
    Step& step = steps_[patch.step];
    TensorRef& ref = patch.is_output ? step.outputs[patch.index] : step.inputs[patch.index];
    ref.data = patch.from_output ? outputs[patch.argument] : const_cast<void*>(inputs[patch.argument]);
  }
  omp_set_num_threads(threads_);
  std::uint64_t before = observer == nullptr ? 0 : now_ns();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    if (Status status = step.kernel->run({step.inputs, step.outputs, step.scratch}); !status.ok()) {
      return status;
    }
    if (observer != nullptr) {
      observer->done(i, now_ns() - before, step.outputs);
      before = now_ns();
    }
  }
  for (const Copy& copy : copies_) {
    const void* from = copy.source == Source::kConstant ? copy.constant
                       : copy.source == Source::kInput  ? inputs[copy.index]
                                                        : outputs[copy.index];
    if (copy.bytes > 0) {
      std::memcpy(outputs[copy.output], from, copy.bytes);
    }
  }
  return {};
}

}  // namespace sluice::engine::cpu
