#include "cpu/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "cpu/aligned_memory.h"
#include "cpu/kernels.h"
#include "cpu/memory_plan.h"
#include "sluice/base/clock.h"

namespace sluice::engine::cpu {

// Decides where each value lies, and writes that into the program's steps.
class Builder {
 public:
  Builder(const Graph& graph, PackedWeights& packed, std::shared_ptr<ThreadPool> pool, bool reference)
      : graph_(graph), packed_(packed), reference_(reference), program_(new CpuProgram), place_(graph.values.size()) {
    program_->pool_ = std::move(pool);
  }

  Result<std::unique_ptr<Program>> build() {
    place_arguments();
    find_last_uses();
    plan_concats();
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
    std::size_t index = 0;   // graph input, graph output, lifetime
    std::size_t offset = 0;  // bytes into a lifetime
  };
  // A value that is computed where a concatenation's result will be.
  struct Part {
    ValueId whole = kNoValue;
    std::size_t offset = 0;
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

  void find_last_uses() {
    last_use_.assign(graph_.values.size(), 0);
    parts_.resize(graph_.values.size());
    producer_.assign(graph_.values.size(), nullptr);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id != kNoValue) {
          last_use_[static_cast<std::size_t>(id)] = i;
        }
      }
      for (const ValueId id : graph_.nodes[i].outputs) {
        if (id != kNoValue) {
          producer_[static_cast<std::size_t>(id)] = &graph_.nodes[i];
        }
      }
    }
  }

  // Whether parts along the node's axis lie one after the other in the whole.
  bool is_contiguous(const Node& node, ValueId whole) const {
    const Dims& dims = graph_.value(whole).type.dims;
    std::int64_t axis = node.get_int("axis", 0), outer = 1;
    axis += axis < 0 ? static_cast<std::int64_t>(dims.size()) : 0;
    for (std::int64_t d = 0; d < axis; ++d) {
      outer *= dims[static_cast<std::size_t>(d)];
    }
    return outer == 1 && node.domain.empty();
  }
  bool is_split(const Node* node) const {
    return node != nullptr && node->op == "Split" && is_contiguous(*node, node->inputs[0]) &&
           std::all_of(node->outputs.begin(), node->outputs.end(), [&](ValueId id) {
             return id != kNoValue && place_[static_cast<std::size_t>(id)].kind == Kind::kUnused;
           });
  }
  // A value that a step of its own writes to the arena, and that may be told where.
  bool is_free(ValueId id) const {
    const auto at = static_cast<std::size_t>(id);
    return id != kNoValue && place_[at].kind == Kind::kUnused && parts_[at].whole == kNoValue &&
           producer_[at] != nullptr && !producer_[at]->schema->definition.view && !is_split(producer_[at]);
  }

  // A concatenation needs no step where all its inputs can be written into its result. What a Split has just taken
  // apart counts as what was split.
  void plan_concats() {
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {  // the last first: a concatenation may be part of another
      const Node& node = graph_.nodes[i];
      if (node.op != "Concat" || node.outputs.size() != 1 || place(node.outputs[0]).kind != Kind::kUnused ||
          !is_contiguous(node, node.outputs[0])) {
        continue;
      }
      std::vector<ValueId> sources;
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const Node* split = producer_[static_cast<std::size_t>(node.inputs[k])];
        const std::size_t count = is_split(split) ? split->outputs.size() : 0;
        if (count > 0 && k + count <= node.inputs.size() &&
            std::equal(split->outputs.begin(), split->outputs.end(),
                       node.inputs.begin() + static_cast<std::ptrdiff_t>(k))) {
          sources.push_back(split->inputs[0]);
          k += count - 1;
        } else {
          sources.push_back(node.inputs[k]);
        }
      }
      std::vector<ValueId> sorted = sources;
      std::sort(sorted.begin(), sorted.end());
      if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
          !std::all_of(sources.begin(), sources.end(), [&](ValueId id) { return is_free(id); })) {
        continue;
      }
      std::size_t offset = 0;
      for (const ValueId id : sources) {
        parts_[static_cast<std::size_t>(id)] = {node.outputs[0], offset};
        offset += bytes_of(id);
      }
      joined_.insert(&node);
    }
  }

  // Gives a value its place in the arena, written by `step`.
  void allocate(ValueId id, std::size_t step) {
    if (place(id).kind == Kind::kUnused) {
      const Part part = parts_[static_cast<std::size_t>(id)];
      if (part.whole != kNoValue) {
        allocate(part.whole, step);
        place(id) = place(part.whole);
        place(id).offset += part.offset;
      } else {
        place(id) = {Kind::kArena, lifetimes_.size(), 0};
        lifetimes_.push_back({bytes_of(id), step, step});
        group_end_.push_back(0);
      }
    }
    join(id, step);
  }

  // A value that lies in a lifetime keeps it alive.
  void join(ValueId id, std::size_t step) {
    const Place at = place(id);
    if (at.kind == Kind::kArena) {
      lifetimes_[at.index].last = std::max(lifetimes_[at.index].last, step);
      group_end_[at.index] = std::max(group_end_[at.index], last_use_[static_cast<std::size_t>(id)]);
    }
  }

  // The result of a node may take the place of an input that nobody needs any more.
  void overwrite(const Node& node, std::size_t index, const Kernel& kernel) {
    const ValueId out = node.outputs[0];
    if (out == kNoValue || place(out).kind != Kind::kUnused ||
        parts_[static_cast<std::size_t>(out)].whole != kNoValue) {
      return;
    }
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId in = node.inputs[k];
      if (in == kNoValue || place(in).kind != Kind::kArena || !kernel.may_overwrite(k) ||
          bytes_of(in) != bytes_of(out) || group_end_[place(in).index] > index ||
          lifetimes_[place(in).index].bytes != bytes_of(in)) {
        continue;
      }
      const auto others = std::count_if(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
        return id != kNoValue && place(id).kind == Kind::kArena && place(id).index == place(in).index;
      });
      if (others == 1) {
        place(out) = place(in);
        return;
      }
    }
  }

  // Concatenations and splits that are only a matter of where things lie.
  bool lies_there(const Node& node) {
    if (joined_.contains(&node)) {
      return true;
    }
    if (!is_split(&node) || place(node.inputs[0]).kind != Kind::kArena) {
      return false;
    }
    Place part = place(node.inputs[0]);
    for (const ValueId id : node.outputs) {
      place(id) = part;
      join(id, 0);
      part.offset += bytes_of(id);
    }
    return true;
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
    join(node.outputs[0], 0);
    return true;
  }

  ValueId constant_of(ValueId id) const {
    const auto found = aliased_constants_.find(id);
    return found == aliased_constants_.end() ? id : found->second;
  }

  Status make_steps() {
    for (std::size_t index = 0; index < graph_.nodes.size(); ++index) {
      const Node& node = graph_.nodes[index];
      if (alias(node) || lies_there(node)) {
        continue;
      }
      KernelContext context(graph_, node, &packed_, program_->pool_->threads());
      auto choice = Kernels::get().make(context, reference_);
      if (!choice.ok()) {
        return choice.status();
      }
      const std::size_t step = nodes_.size();
      nodes_.push_back(&node);
      released_.push_back(context.released_inputs());
      StepInfo info{node.name, node.op, choice->implementation, {}, {}};
      overwrite(node, index, *choice->kernel);
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) {
          allocate(id, step);
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
        group_end_.push_back(0);
      }
      program_->info_.steps.push_back(std::move(info));
      program_->steps_.push_back({std::move(choice->kernel), {}, {}, nullptr});
    }
    return {};
  }

  Status lay_out() {
    plan_ = plan_memory(lifetimes_);
    const std::shared_ptr<void> arena = allocate_aligned(plan_.arena_bytes);
    if (arena == nullptr) {
      return Status::error(Code::kResourceExhausted, "no memory for an arena of %zu bytes; use smaller inputs",
                           plan_.arena_bytes);
    }
    program_->arena_ = std::static_pointer_cast<std::byte>(arena);
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

  // Gather moves its data's bytes, whatever their alignment: tables of embeddings stay in the file.
  static bool moves_bytes(const Node& node, std::size_t input) {
    return node.op == "Gather" && node.domain.empty() && input == 0;
  }

  Result<const std::byte*> hold_constant(ValueId id, bool any_alignment = false) {
    const ValueId root = constant_of(id);
    if (any_alignment) {
      program_->constants_.push_back(*graph_.value(root).constant);
      return program_->constants_.back().data();
    }
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
      ref.data = program_->arena_.get() + plan_.offsets[at.index] + at.offset;
    } else if (at.kind == Kind::kConstant && !released) {
      auto data = hold_constant(id, !patch.is_output && moves_bytes(*nodes_[patch.step], patch.index));
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
  const bool reference_;
  std::unique_ptr<CpuProgram> program_;
  std::vector<Place> place_;                      // by value
  std::map<ValueId, ValueId> aliased_constants_;  // view -> what it views
  std::map<ValueId, const std::byte*> held_;
  std::vector<const Node*> nodes_;  // of each step
  std::vector<std::vector<std::size_t>> released_;
  std::vector<std::optional<std::size_t>> scratch_;  // of each step: a lifetime
  std::vector<Lifetime> lifetimes_;
  std::vector<std::size_t> group_end_;  // of each lifetime: the last node that uses a value in it
  std::vector<std::size_t> last_use_;   // of each value: a node
  std::vector<Part> parts_;             // of each value
  std::vector<const Node*> producer_;   // of each value
  std::set<const Node*> joined_;        // concatenations without a step
  MemoryPlan plan_;
};

Result<std::unique_ptr<Program>> CpuProgram::compile(const Graph& graph, PackedWeights& packed,
                                                     std::shared_ptr<ThreadPool> pool, bool reference) {
  return Builder(graph, packed, std::move(pool), reference).build();
}

Status CpuProgram::run(std::span<const void* const> inputs, std::span<void* const> outputs, StepObserver* observer) {
  for (const Patch& patch : patches_) {
    Step& step = steps_[patch.step];
    TensorRef& ref = patch.is_output ? step.outputs[patch.index] : step.inputs[patch.index];
    ref.data = patch.from_output ? outputs[patch.argument] : const_cast<void*>(inputs[patch.argument]);
  }
  const ThreadPool::Scope scope(pool_.get());
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
