// The same order without a graph: stages on streams of the pipeline's, with events between them.
#include <algorithm>

#include "impl.h"

namespace sluice::graph {
namespace {

constexpr std::size_t kStreamsOfAPriority = 4;
constexpr std::size_t kPriorities = 3;

}  // namespace

Status Pipeline::Impl::run_stage(const StageInfo& stage, CUstream stream, const AddressList& where) {
  if (stage.kind == Kind::kCode) return stage.code(stream, where);
  CUresult e = fill(stage, where, &scratch);
  const CUDA_KERNEL_NODE_PARAMS_v1& k = scratch.kernel;
  switch (stage.kind) {
    case Kind::kKernel:
      e = calls->launch_kernel(k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY, k.blockDimZ,
                               k.sharedMemBytes, stream, k.kernelParams, nullptr);
      break;
    case Kind::kCopy:
      e = calls->copy_async(scratch.copy.dstDevice, scratch.copy.srcDevice, scratch.copy.WidthInBytes, stream);
      break;
    case Kind::kMemset:
      e = calls->memset_async(scratch.memset.dst, stage.transfer.value, scratch.memset.width, stream);
      break;
    case Kind::kHost:
      e = calls->launch_host(stream, scratch.host.fn, scratch.host.userData);
      break;
    case Kind::kCode:
      break;
  }
  return e == CUDA_SUCCESS ? Status() : refused("submitting it", e, stage.name);
}

Status Pipeline::Impl::launch_on_streams(CUstream stream) {
  streams.resize(kPriorities * kStreamsOfAPriority);
  const std::size_t n = stages.size();
  while (events.size() < n + 1) {
    CUevent event = nullptr;
    if (const CUresult e = calls->event_create(&event, CU_EVENT_DISABLE_TIMING); e != CUDA_SUCCESS)
      return Status::error(Code::kInternal, "cuEventCreate: %s", calls->name_of(e));
    events.push_back(event);
  }
  CUresult e = calls->event_record(events[n], stream);
  std::vector<std::uint32_t> on(n), last(streams.size(), static_cast<std::uint32_t>(n));
  std::vector<std::size_t> turn(kPriorities);
  for (const std::uint32_t s : order) {
    const auto level = priorities[s] == Priority::kLow ? 0U : priorities[s] == Priority::kHigh ? 2U : 1U;
    const std::uint32_t* from = edges.data() + edges_begin[s];
    const std::uint32_t* to = edges.data() + edges_begin[s + 1];
    // Behind a stage that it waits for, where that is the last on its stream.
    const auto* behind = std::find_if(
        from, to, [&](std::uint32_t f) { return last[on[f]] == f && on[f] / kStreamsOfAPriority == level; });
    on[s] = static_cast<std::uint32_t>(
        behind != to ? on[*behind] : level * kStreamsOfAPriority + turn[level]++ % kStreamsOfAPriority);
    CUstream& mine = streams[on[s]];
    if (mine == nullptr) {
      const int priority = level == 0 ? priority_low : level == 2 ? priority_high : 0;
      if (e == CUDA_SUCCESS) e = calls->stream_create(&mine, CU_STREAM_NON_BLOCKING, priority);
    }
    if (last[on[s]] == n && e == CUDA_SUCCESS) e = calls->wait_event(mine, events[n], 0);
    for (const std::uint32_t* f = from; f != to && e == CUDA_SUCCESS; ++f) {
      if (on[*f] != on[s]) e = calls->wait_event(mine, events[*f], 0);
    }
    if (e == CUDA_SUCCESS) {
      if (Status failed = run_stage(stages[s], mine, address_scratch); !failed.ok()) return failed;
      e = calls->event_record(events[s], mine);
    }
    if (e != CUDA_SUCCESS) return refused("ordering it", e, stages[s].name);
    last[on[s]] = s;
  }
  for (const std::uint32_t s : last) {
    if (s != n && e == CUDA_SUCCESS) e = calls->wait_event(stream, events[s], 0);
  }
  return e == CUDA_SUCCESS ? Status() : Status::error(Code::kInternal, "cuStreamWaitEvent: %s", calls->name_of(e));
}

}  // namespace sluice::graph
