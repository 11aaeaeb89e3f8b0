// What the driver is told about one stage.
#include <utility>

#include "impl.h"

namespace sluice::graph {
namespace {

void call_host(void* user) {
  const auto* call = static_cast<const HostCall*>(user);
  call->function(call->addresses);
}

}  // namespace

HostCall* Pipeline::Impl::host_call(const StageInfo& stage, const AddressList& where) {
  host_calls.resize(stages.size());
  std::unique_ptr<HostCall>& call = host_calls[static_cast<std::size_t>(&stage - stages.data())];
  if (call == nullptr) {
    call = std::make_unique<HostCall>(HostCall{stage.host, where});
  } else if (call->addresses.list != where.list) {
    static_cast<void>(wait_for_launch().ok());  // whose host functions read it; an error shows at the next call
    call->addresses = where;
  }
  return call.get();
}

CUresult Pipeline::Impl::fill(const StageInfo& stage, const AddressList& where, Parameters* out) {
  const Transfer& transfer = stage.transfer;
  switch (stage.kind) {
    case Kind::kKernel: {
      const Kernel& kernel = stage.kernel;
      out->values.resize(kernel.arguments.size());
      out->pointers.resize(kernel.arguments.size());
      for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
        const Argument& argument = kernel.arguments[i];
        out->pointers[i] = const_cast<std::byte*>(argument.bytes);
        if (!argument.is_buffer) continue;
        __builtin_memcpy(&out->values[i], argument.bytes, sizeof(std::uint64_t));
        out->values[i] += where.of(argument.buffer);
        out->pointers[i] = &out->values[i];
      }
      out->kernel = {};
      out->kernel.func = kernel.function;
      out->kernel.gridDimX = kernel.grid[0];
      out->kernel.gridDimY = kernel.grid[1];
      out->kernel.gridDimZ = kernel.grid[2];
      out->kernel.blockDimX = kernel.block[0];
      out->kernel.blockDimY = kernel.block[1];
      out->kernel.blockDimZ = kernel.block[2];
      out->kernel.sharedMemBytes = kernel.shared_bytes;
      out->kernel.kernelParams = out->pointers.data();
      return CUDA_SUCCESS;
    }
    case Kind::kCopy:
      out->copy = {};
      out->copy.srcMemoryType = out->copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
      out->copy.srcDevice = where.of(transfer.from) + transfer.from_offset;
      out->copy.dstDevice = where.of(transfer.to) + transfer.to_offset;
      out->copy.WidthInBytes = transfer.bytes;
      out->copy.Height = out->copy.Depth = 1;
      return CUDA_SUCCESS;
    case Kind::kMemset:
      out->memset = {};
      out->memset.dst = where.of(transfer.to) + transfer.to_offset;
      out->memset.value = transfer.value;
      out->memset.elementSize = 1;
      out->memset.width =
          transfer.bytes == kToEnd ? buffers[index_of(transfer.to)].bytes - transfer.to_offset : transfer.bytes;
      out->memset.height = 1;
      return CUDA_SUCCESS;
    case Kind::kHost:
      out->host = {&call_host, host_call(stage, where)};
      return CUDA_SUCCESS;
    case Kind::kCode:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

Result<CUgraph> Pipeline::Impl::capture(const StageInfo& stage, int priority) {
  CUstream stream = own_stream;
  if (priority != 0) {
    if (const CUresult e = calls->stream_create(&stream, CU_STREAM_NON_BLOCKING, priority); e != CUDA_SUCCESS)
      return refused("cuStreamCreateWithPriority", e, stage.name);
  }
  CUgraph graph = nullptr;
  Status failed;
  if (const CUresult e = calls->begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); e != CUDA_SUCCESS) {
    failed = refused("cuStreamBeginCapture", e, stage.name);
  } else {
    failed = stage.code(stream, addresses());
    const CUresult end = calls->end_capture(stream, &graph);
    if (failed.ok() && end != CUDA_SUCCESS) failed = refused("capturing it", end, stage.name);
  }
  if (stream != own_stream) calls->stream_destroy(stream);
  if (failed.ok()) return graph;
  if (graph != nullptr) calls->graph_destroy(graph);
  return failed;
}

Status Pipeline::Impl::add_node(std::uint32_t index, const std::vector<CUgraphNode>& nodes, Instance* to) {
  const StageInfo& stage = stages[index];
  std::vector<CUgraphNode>& before = node_scratch;
  before.clear();
  for (std::uint32_t i = edges_begin[index]; i < edges_begin[index + 1]; ++i) before.push_back(nodes[edges[i]]);
  const CUgraphNode* list = before.empty() ? nullptr : before.data();
  CUgraphNode* node = &to->nodes[index];
  CUresult e = fill(stage, address_scratch, &scratch);
  const int priority = priorities[index] == Priority::kHigh && several_priorities ? priority_high
                       : priorities[index] == Priority::kLow                      ? priority_low
                                                                                  : 0;
  switch (stage.kind) {
    case Kind::kKernel:
      e = calls->add_kernel(node, to->graph, list, before.size(), &scratch.kernel);
      if (e == CUDA_SUCCESS && several_priorities && calls->kernel_attribute != nullptr) {
        CUlaunchAttributeValue value = {};
        value.priority = priority;
        // A driver without it runs the same graph, with all its kernels at one priority.
        calls->kernel_attribute(*node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
      }
      break;
    case Kind::kCopy:
      e = calls->add_copy(node, to->graph, list, before.size(), &scratch.copy, context);
      break;
    case Kind::kMemset:
      e = calls->add_memset(node, to->graph, list, before.size(), &scratch.memset, context);
      break;
    case Kind::kHost:
      e = calls->add_host(node, to->graph, list, before.size(), &scratch.host);
      break;
    case Kind::kCode: {
      Result<CUgraph> captured = capture(stage, priority);
      if (!captured.ok()) {
        why = captured.status().message();
        return captured.status();
      }
      e = calls->add_child(node, to->graph, list, before.size(), *captured);
      calls->graph_destroy(*captured);
      break;
    }
  }
  if (e != CUDA_SUCCESS) return refused("adding it to a graph", e, stage.name);
  to->applied[index] = stage.version;
  return {};
}

bool Pipeline::Impl::update_node(std::uint32_t index, Instance* instance) {
  const StageInfo& stage = stages[index];
  CUgraphExec exec = instance->exec;
  CUgraphNode node = instance->nodes[index];
  CUresult e = fill(stage, address_scratch, &scratch);
  switch (stage.kind) {
    case Kind::kKernel:
      e = calls->set_kernel(exec, node, &scratch.kernel);
      break;
    case Kind::kCopy:
      e = calls->set_copy(exec, node, &scratch.copy, context);
      break;
    case Kind::kMemset:
      e = calls->set_memset(exec, node, &scratch.memset, context);
      break;
    case Kind::kHost:
      e = calls->set_host(exec, node, &scratch.host);
      break;
    case Kind::kCode: {
      const int priority = priorities[index] == Priority::kLow ? priority_low : 0;
      Result<CUgraph> captured = capture(stage, priority);
      if (!captured.ok()) return false;
      e = calls->set_child(exec, node, *captured);
      calls->graph_destroy(*captured);
      break;
    }
  }
  if (e != CUDA_SUCCESS) return false;
  instance->applied[index] = stage.version;
  ++stats.updates;
  return true;
}

}  // namespace sluice::graph
