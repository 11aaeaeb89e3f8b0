// Instantiated graphs: made, changed in place, kept, launched.
#include <algorithm>

#include "impl.h"

namespace sluice::graph {

constexpr unsigned long long kUseNodePriority = 8;  // CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, since CUDA 11.7

Status Pipeline::Impl::refused(const char* what, CUresult code, const std::string& stage) const {
  return Status::error(code == CUDA_ERROR_OUT_OF_MEMORY ? Code::kResourceExhausted : Code::kInternal,
                       "stage '%s': %s: %s", stage.c_str(), what, calls->name_of(code));
}

Status Pipeline::Impl::wait_for_launch() {
  if (stats.launches == 0) return {};
  const CUresult e = calls->event_synchronize(done);
  return e == CUDA_SUCCESS ? Status() : Status::error(Code::kInternal, "a launch failed: %s", calls->name_of(e));
}

void Pipeline::Impl::destroy(Instance* instance) {
  if (instance->exec != nullptr) calls->exec_destroy(instance->exec);
  if (instance->graph != nullptr) calls->graph_destroy(instance->graph);
}

Status Pipeline::Impl::move_temporaries() {
  const std::uint64_t needed = stats.temporaries_peak_bytes;
  if (needed > arena_bytes) {
    if (Status s = wait_for_launch(); !s.ok()) return s;
    if (arena != 0 && options.pool != nullptr) static_cast<void>(options.pool->free(arena, own_stream).ok());
    if (arena != 0 && options.pool == nullptr) calls->free(arena);
    arena = 0;
    arena_bytes = 0;
    if (options.pool != nullptr) {
      Result<CUdeviceptr> block = options.pool->allocate(needed, own_stream);
      if (!block.ok()) return block.status();
      arena = *block;
      calls->stream_synchronize(own_stream);  // other streams may use the block from here on
    } else if (const CUresult e = calls->allocate(&arena, needed); e != CUDA_SUCCESS) {
      arena = 0;
      return Status::error(Code::kResourceExhausted, "%llu bytes for temporaries: %s",
                           static_cast<unsigned long long>(needed), calls->name_of(e));
    }
    arena_bytes = needed;
  }
  std::vector<bool> moved(buffers.size());
  bool any = false;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    BufferInfo& buffer = buffers[b];
    if (!buffer.temporary || buffer.address == arena + buffer.place) continue;
    buffer.address = arena + buffer.place;
    any = moved[b] = true;
  }
  for (StageInfo& stage : stages) {
    if (!any) break;
    stage.version += std::any_of(stage.accesses.begin(), stage.accesses.end(),
                                 [&](const Access& a) { return moved[index_of(a.buffer)]; });
  }
  return {};
}

Status Pipeline::Impl::instantiate(Instance* out) {
  if (const CUresult e = calls->graph_create(&out->graph, 0); e != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuGraphCreate: %s", calls->name_of(e));
  out->nodes.assign(stages.size(), nullptr);
  out->applied.assign(stages.size(), 0);
  for (const std::uint32_t s : order) {
    if (Status failed = add_node(s, out->nodes, out); !failed.ok()) return failed;
  }
  const CUresult e = calls->instantiate(&out->exec, out->graph, several_priorities ? kUseNodePriority : 0);
  if (e != CUDA_SUCCESS) return Status::error(Code::kInternal, "cuGraphInstantiateWithFlags: %s", calls->name_of(e));
  ++stats.instantiations;
  return {};
}

// Afterwards `current` is what the declarations say, or null and why says why launches run on streams.
Status Pipeline::Impl::make_ready() {
  if (Status s = plan(); !s.ok()) return s;
  if (ready) return {};
  if (Status s = check_buffers(); !s.ok()) return s;
  if (Status s = move_temporaries(); !s.ok()) return s;
  address_scratch = addresses();
  current = nullptr;
  why.clear();
  if (!options.use_graphs) {
    why = "graphs are switched off";
    ready = true;
    return {};
  }
  std::vector<std::uint32_t> key = edges_begin;
  key.insert(key.end(), edges.begin(), edges.end());
  for (const Priority priority : priorities) key.push_back(static_cast<std::uint32_t>(priority));
  const auto found = std::find_if(instances.begin(), instances.end(), [&](const Instance& i) { return i.key == key; });
  if (found != instances.end()) {
    bool updated = true;
    for (std::uint32_t s = 0; s < stages.size() && updated; ++s) {
      if (found->applied[s] != stages[s].version) updated = update_node(s, &*found);
    }
    if (updated) {
      current = &*found;
    } else {  // a change that the driver cannot make in place
      if (Status s = wait_for_launch(); !s.ok()) return s;
      destroy(&*found);
      instances.erase(found);
    }
  }
  if (current == nullptr) {
    Instance made;
    if (Status s = instantiate(&made); !s.ok()) {
      destroy(&made);
      if (why.empty()) return s;
      ready = true;
      return {};
    }
    if (instances.size() >= options.kept_graphs) {
      if (Status s = wait_for_launch(); !s.ok()) return s;
      const auto oldest = std::min_element(instances.begin(), instances.end(),
                                           [](const auto& a, const auto& b) { return a.last_used < b.last_used; });
      destroy(&*oldest);
      instances.erase(oldest);
    }
    made.key = std::move(key);
    current = &instances.emplace_back(std::move(made));
  }
  ready = true;
  return {};
}

Status Pipeline::Impl::build() { return make_ready(); }

Status Pipeline::Impl::launch(CUstream stream) {
  if (Status s = make_ready(); !s.ok()) return s;
  CUcontext of_stream = nullptr;
  if (calls->stream_context(stream, &of_stream) != CUDA_SUCCESS || of_stream != context)
    return Status::error(Code::kInvalidArgument, "stage '%s': the stream is not of the pipeline's context",
                         stages[order[0]].name.c_str());
  // Launches share the temporaries. The driver itself orders only those of one graph.
  if (stats.launches > 0 && stream != last_stream) {
    if (const CUresult e = calls->wait_event(stream, done, 0); e != CUDA_SUCCESS)
      return Status::error(Code::kInternal, "cuStreamWaitEvent: %s", calls->name_of(e));
  }
  if (current != nullptr) {
    current->last_used = stats.launches + 1;
    if (const CUresult e = calls->launch(current->exec, stream); e != CUDA_SUCCESS)
      return Status::error(Code::kInternal, "cuGraphLaunch: %s", calls->name_of(e));
  } else if (Status s = launch_on_streams(stream); !s.ok()) {
    return s;
  }
  if (const CUresult e = calls->event_record(done, stream); e != CUDA_SUCCESS)
    return Status::error(Code::kInternal, "cuEventRecord: %s", calls->name_of(e));
  last_stream = stream;
  ++stats.launches;
  return {};
}

}  // namespace sluice::graph
