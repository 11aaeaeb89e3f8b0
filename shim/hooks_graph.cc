// Wrappers of what makes graphs executable and updates them. Should the program's call fail for the sake of the gates
// that its captures got, it is made again without them.
#include <cuda.h>

#include "graphs.h"
#include "hooks.h"
#include "session.h"

// Here each name means the exported symbol of that very name.
#undef cuGraphExecUpdate
#undef cuGraphInstantiate

namespace sluice::shim {
namespace {

constexpr unsigned long long kDeviceLaunch = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;

bool may_be_for_gates(CUresult result) { return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY; }

template <class Call>
CUresult without_gates_if_need_be(Call call, CUgraph graph) {
  const CUresult result = call();
  return may_be_for_gates(result) && strip(graph) ? call() : result;
}

template <class Call>
CUresult instantiate(Call call, const CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  if ((flags & kDeviceLaunch) != 0) strip(graph);  // it takes no waits
  const CUresult result = without_gates_if_need_be(call, graph);
  if (result == CUDA_SUCCESS && exec != nullptr) graph_made(*exec, graph, flags);
  return result;
}

// An executable graph whose gates were taken out is updated by graphs that have them. One with other kernels than the
// graph's would be refused without gates as well: the graph keeps them for what the program makes of it then.
template <class Call>
CUresult update(Call call, CUgraphExec exec, CUgraph graph) {
  const CUresult result = call();
  if (!may_be_for_gates(result)) return result;
  const GraphFacts facts = facts_of(exec);
  const bool may_fit = facts.gates == 0 && (!facts.is_known || facts.kernels == kernels_of(graph));
  return may_fit && strip(graph) ? call() : result;
}

#define WRAP_INSTANTIATE(symbol)                                                                  \
  SLUICE_WRAPPER(symbol, instantiate(call, exec, graph, 0),                                       \
                 (CUgraphExec * exec, CUgraph graph, CUgraphNode * bad, char* log, size_t bytes), \
                 (exec, graph, bad, log, bytes))
WRAP_INSTANTIATE(cuGraphInstantiate)
WRAP_INSTANTIATE(cuGraphInstantiate_v2)
SLUICE_WRAPPER(cuGraphInstantiateWithFlags, instantiate(call, exec, graph, flags),
               (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
#define WRAP_WITH_PARAMS(symbol)                                                      \
  SLUICE_WRAPPER(symbol, instantiate(call, exec, graph, p != nullptr ? p->flags : 0), \
                 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * p), (exec, graph, p))
WRAP_WITH_PARAMS(cuGraphInstantiateWithParams)
WRAP_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

SLUICE_WRAPPER(cuGraphExecDestroy, (graph_gone(exec), call()), (CUgraphExec exec), (exec))
SLUICE_WRAPPER(cuGraphExecUpdate, update(call, exec, graph),
               (CUgraphExec exec, CUgraph graph, CUgraphNode* bad, CUgraphExecUpdateResult* how),
               (exec, graph, bad, how))
SLUICE_WRAPPER(cuGraphExecUpdate_v2, update(call, exec, graph),
               (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info), (exec, graph, info))
SLUICE_WRAPPER(cuGraphAddChildGraphNode, without_gates_if_need_be(call, child),
               (CUgraphNode * node, CUgraph graph, const CUgraphNode* before, size_t count, CUgraph child),
               (node, graph, before, count, child))
SLUICE_WRAPPER(cuGraphExecChildGraphNodeSetParams, without_gates_if_need_be(call, child),
               (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child))

#define HOOK(symbol) \
  { #symbol, reinterpret_cast < void*>(&hook_##symbol), &real_##symbol }
const Hook kHooks[] = {
    HOOK(cuGraphInstantiate),
    HOOK(cuGraphInstantiate_v2),
    HOOK(cuGraphInstantiateWithFlags),
    HOOK(cuGraphInstantiateWithParams),
    HOOK(cuGraphInstantiateWithParams_ptsz),
    HOOK(cuGraphExecDestroy),
    HOOK(cuGraphExecUpdate),
    HOOK(cuGraphExecUpdate_v2),
    HOOK(cuGraphAddChildGraphNode),
    HOOK(cuGraphExecChildGraphNodeSetParams),
};

}  // namespace

std::span<const Hook> graph_hooks() { return kHooks; }

}  // namespace sluice::shim
