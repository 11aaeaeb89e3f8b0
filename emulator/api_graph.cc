// Graphs as the program builds and reads them.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "graph.h"

using namespace sluice::emulator;

// Here each name means the exported symbol of that very name.
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphAddDependencies
#undef cuGraphRemoveDependencies

namespace {

// What every call here begins with: `call` and `graph`, or `node`.
#define EMU_GRAPH(handle)                            \
  Call call(false);                                  \
  if (call.error != CUDA_SUCCESS) return call.error; \
  Graph* graph = find_graph(handle);                 \
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE
#define EMU_NODE(handle)                             \
  Call call(false);                                  \
  if (call.error != CUDA_SUCCESS) return call.error; \
  Node* node = find_node(handle);                    \
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE

// As all calls do that give lists: without `out` only their number, else as many as there is room for; the rest of the
// room is filled with nulls.
CUresult list(const std::vector<Node*>& nodes, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
    *count = std::min(*count, nodes.size());
  } else {
    *count = nodes.size();
  }
  return CUDA_SUCCESS;
}

void plain(CUgraphEdgeData* edges, std::size_t count) {
  if (edges != nullptr) std::fill_n(edges, count, CUgraphEdgeData{});
}

CUresult change(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, std::size_t count, bool add) {
  EMU_GRAPH(handle);
  if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    Node* a = find_node(from[i]);
    Node* b = find_node(to[i]);
    if (a == nullptr || b == nullptr || a == b || a->graph != graph || b->graph != graph)
      return CUDA_ERROR_INVALID_VALUE;
    const bool there = std::find(b->before.begin(), b->before.end(), a) != b->before.end();
    if (there == add) return CUDA_ERROR_INVALID_VALUE;
    if (add) {
      connect(a, b);
    } else {
      disconnect(a, b);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

EMU_API CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto graph = std::make_unique<Graph>();
  *out = handle_of(graph.get());
  state().graphs.emplace(graph.get(), std::move(graph));
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphDestroy(CUgraph handle) {
  EMU_GRAPH(handle);
  return state().graphs.erase(graph) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // those of nodes go with them
}

EMU_API CUresult cuGraphClone(CUgraph* out, CUgraph original) {
  EMU_GRAPH(original);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<Graph> copy = copy_of(*graph);
  *out = handle_of(copy.get());
  state().graphs.emplace(copy.get(), std::move(copy));
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  EMU_GRAPH(clone);
  const auto at = graph->copies.find(find_node(original));
  if (out == nullptr || at == graph->copies.end() || find_node(handle_of(at->second)) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(at->second);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* out, std::size_t* count) {
  EMU_GRAPH(handle);
  std::vector<Node*> nodes;
  for (const auto& node : graph->nodes) nodes.push_back(node.get());
  return list(nodes, out, count);
}

EMU_API CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, std::size_t* count) {
  EMU_GRAPH(handle);
  std::vector<Node*> roots;
  for (const auto& node : graph->nodes) {
    if (node->before.empty()) roots.push_back(node.get());
  }
  return list(roots, out, count);
}

EMU_API CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  EMU_GRAPH(handle);
  if ((from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> starts, ends;
  for (const auto& node : graph->nodes) {
    for (Node* before : node->before) {
      starts.push_back(before);
      ends.push_back(node.get());
    }
  }
  std::size_t room = count != nullptr ? *count : 0;
  if (CUresult e = list(starts, from, count); e != CUDA_SUCCESS) return e;
  return list(ends, to, &room);
}
EMU_API CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                                    std::size_t* count) {
  const CUresult result = cuGraphGetEdges(handle, from, to, count);
  if (result == CUDA_SUCCESS) plain(edges, *count);
  return result;
}

EMU_API CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  EMU_NODE(handle);
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* out, std::size_t* count) {
  EMU_NODE(handle);
  return list(node->before, out, count);
}
EMU_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* edges,
                                               std::size_t* count) {
  const CUresult result = cuGraphNodeGetDependencies(handle, out, count);
  if (result == CUDA_SUCCESS) plain(edges, *count);
  return result;
}
EMU_API CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* out, std::size_t* count) {
  EMU_NODE(handle);
  return list(node->after, out, count);
}
EMU_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* edges,
                                                 std::size_t* count) {
  const CUresult result = cuGraphNodeGetDependentNodes(handle, out, count);
  if (result == CUDA_SUCCESS) plain(edges, *count);
  return result;
}

EMU_API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        std::size_t count) {
  return change(graph, from, to, count, true);
}
EMU_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData*, std::size_t count) {
  return change(graph, from, to, count, true);
}
EMU_API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           std::size_t count) {
  return change(graph, from, to, count, false);
}
EMU_API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                              const CUgraphEdgeData*, std::size_t count) {
  return change(graph, from, to, count, false);
}

EMU_API CUresult cuGraphDestroyNode(CUgraphNode handle) {
  EMU_NODE(handle);
  for (const auto& capture : state().captures) {
    if (capture->graph == node->graph) return CUDA_ERROR_NOT_PERMITTED;  // what is being captured only grows
  }
  destroy_node(node);
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  EMU_NODE(handle);
  if (out == nullptr || node->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(node->children[0].get());
  return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph handle, CUcontext,
                                                unsigned value, unsigned flags) {
  EMU_GRAPH(handle);
  if (out == nullptr || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = state().next_id++;
  graph->conditions[*out] = value;
  return CUDA_SUCCESS;
}

// Nodes and edges without their parameters, in the language of Graphviz.
EMU_API CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  EMU_GRAPH(handle);
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "w"), std::fclose);
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  constexpr const char* kTypes[] = {"KERNEL",    "MEMCPY",     "MEMSET",       "HOST",           "GRAPH",
                                    "EMPTY",     "WAIT_EVENT", "EVENT_RECORD", "EXT_SEM_SIGNAL", "EXT_SEM_WAIT",
                                    "MEM_ALLOC", "MEM_FREE",   "BATCH_MEM_OP", "CONDITIONAL"};
  std::unordered_map<const Node*, std::size_t> index;
  std::fprintf(file.get(), "digraph graph_emulated {\n");
  for (const auto& node : graph->nodes) {
    const std::size_t number = index.size();
    index[node.get()] = number;
    std::fprintf(file.get(), "  n%zu [label=\"%zu %s\"];\n", number, number, kTypes[node->type]);
  }
  for (const auto& node : graph->nodes) {
    for (const Node* before : node->before)
      std::fprintf(file.get(), "  n%zu -> n%zu;\n", index[before], index[node.get()]);
  }
  std::fprintf(file.get(), "}\n");
  return CUDA_SUCCESS;
}
