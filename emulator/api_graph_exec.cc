// Executable graphs: made, launched, updated.

#include "both.h"
#include "graph.h"

using namespace sluice::emulator;

// Here each name means the exported symbol of that very name.
#undef cuGraphExecUpdate
#undef cuGraphInstantiate

namespace {

CUresult make(CUgraphExec* out, CUgraph handle, unsigned long long flags, CUgraphNode* bad_handle = nullptr) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Graph* graph = find_graph(handle);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Exec* exec = nullptr;
  Node* bad = nullptr;
  const CUresult result = instantiate(*graph, flags, &exec, &bad);
  if (bad_handle != nullptr) *bad_handle = handle_of(bad);
  if (result == CUDA_SUCCESS) *out = handle_of(exec);
  return result;
}

CUresult make_with_params(bool, CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = make(out, graph, p->flags, &p->hErrNode_out);
  p->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                  : result == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                  : result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                                                       : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult run(bool per_thread, CUgraphExec handle, CUstream stream) {
  EMU_SUBMIT(stream);
  Exec* exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (at->capture == nullptr) return launch(exec, at, call.lock);
  Node* node = nullptr;
  const CUresult result = capture_node(at, CU_GRAPH_NODE_TYPE_GRAPH, &node);
  if (node != nullptr) node->children.push_back(copy_of(*exec->graph));
  return result;
}

// Nothing is left to do: a graph is on the card as soon as it is made.
CUresult upload(bool per_thread, CUgraphExec handle, CUstream stream) {
  EMU_SUBMIT(stream);
  return find_exec(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult update_exec(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Exec* exec = find_exec(exec_handle);
  const Graph* graph = find_graph(graph_handle);
  if (exec == nullptr || graph == nullptr || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* bad = nullptr;
  *info = {};
  info->result = update(exec, *graph, &bad);
  info->errorNode = handle_of(bad);
  return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

}  // namespace

EMU_API CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* bad, char* log, std::size_t bytes) {
  if (log != nullptr && bytes != 0) *log = '\0';
  return make(out, graph, 0, bad);
}
EMU_API CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* bad, char* log,
                                       std::size_t bytes) {
  return cuGraphInstantiate(out, graph, bad, log, bytes);
}
EMU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return make(out, graph, flags);
}
EMU_BOTH(cuGraphInstantiateWithParams, make_with_params,
         (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p), (out, graph, p))

EMU_API CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  const Exec* exec = find_exec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags & ~static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  return CUDA_SUCCESS;
}

// What of it still runs, runs to its end.
EMU_API CUresult cuGraphExecDestroy(CUgraphExec handle) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Exec* exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  drop_lanes(exec);
  state().execs.erase(exec);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* bad, CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info = {};
  const CUresult error = update_exec(exec, graph, &info);
  if (bad != nullptr) *bad = info.errorNode;
  if (result != nullptr) *result = info.result;
  return error;
}
EMU_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return update_exec(exec, graph, info);
}

EMU_BOTH(cuGraphLaunch, run, (CUgraphExec exec, CUstream stream), (exec, stream))
EMU_BOTH(cuGraphUpload, upload, (CUgraphExec exec, CUstream stream), (exec, stream))
