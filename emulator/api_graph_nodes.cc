// The parameters of nodes: given when one is added, changed in a graph or in an executable one, and asked for. Every
// call of one kind of node fills the parameters that hold for all kinds.
#include <algorithm>

#include "graph.h"
#include "work.h"

using namespace sluice::emulator;

// Here each name means the exported symbol of that very name.
#undef cuGraphAddKernelNode
#undef cuGraphAddNode
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams

namespace {

CUresult fill_kernel(const CUDA_KERNEL_NODE_PARAMS_v3& p, Node* node) {
  const void* function = p.func != nullptr ? static_cast<const void*>(p.func) : p.kern;
  const Shape shape{{p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes};
  return make_kernel(function, shape, p.kernelParams, p.extra, &node->ops.emplace_back());
}

CUresult fill_memory_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& p, Node* node) {
  if (p.count == 0 || p.count > 256 || p.paramArray == nullptr || p.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < p.count; ++i) {
    Op op;
    bool nothing = false;
    if (CUresult e = make_memory_op(p.paramArray[i], &op, &nothing); e != CUDA_SUCCESS) return e;
    if (!nothing) node->ops.push_back(std::move(op));
  }
  return CUDA_SUCCESS;
}

CUresult fill_event(CUevent event, Node* node) {
  if (state().events.count(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  node->event = event;
  return CUDA_SUCCESS;
}

void mark_as_body(Graph* graph) {
  graph->is_body = true;
  for (const auto& node : graph->nodes) {
    for (const auto& child : node->children) mark_as_body(child.get());
  }
}

bool fits_into_a_body(const Graph& graph) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type <= CU_GRAPH_NODE_TYPE_MEMSET || node->type == CU_GRAPH_NODE_TYPE_GRAPH ||
           node->type == CU_GRAPH_NODE_TYPE_EMPTY || node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  });
}

CUresult fill_child(CUgraph handle, const Graph* parent, Node* node) {
  const Graph* child = find_graph(handle);
  if (child == nullptr || child == parent) return CUDA_ERROR_INVALID_VALUE;
  const bool in_body = parent != nullptr && parent->is_body;
  if (in_body && !fits_into_a_body(*child)) return CUDA_ERROR_NOT_SUPPORTED;
  node->children.push_back(copy_of(*child));
  if (in_body) mark_as_body(node->children.back().get());
  return CUDA_SUCCESS;
}

CUresult fill_condition(CUDA_CONDITIONAL_NODE_PARAMS* p, const Graph& graph, Node* node) {
  const auto value = graph.conditions.find(p->handle);
  const unsigned most = p->type == CU_GRAPH_COND_TYPE_WHILE ? 1 : p->type == CU_GRAPH_COND_TYPE_IF ? 2 : 1024;
  if (value == graph.conditions.end() || p->size == 0 || p->size > most) return CUDA_ERROR_INVALID_VALUE;
  node->condition = p->type;
  node->condition_value = value->second;
  for (unsigned i = 0; i < p->size; ++i) {
    node->children.push_back(std::make_unique<Graph>());
    node->children.back()->is_body = true;
  }
  return CUDA_SUCCESS;
}

// `graph`: where the node is going to be, null if it is there already.
CUresult fill(const CUgraphNodeParams& p, const Graph* graph, Node* node) {
  Op op;
  CUresult result = CUDA_SUCCESS;
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return fill_kernel(p.kernel, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      result = make_copy(p.memcpy.copyParams, &op);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      result = make_fill(p.memset.dst, p.memset.pitch, p.memset.value, p.memset.elementSize, p.memset.width,
                         p.memset.height, &op);
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      if (p.host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
      op.kind = Op::Kind::kHost;
      op.host = p.host.fn;
      op.user = p.host.userData;
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return fill_child(p.graph.graph, graph, node);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return fill_event(p.eventWait.event, node);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return fill_event(p.eventRecord.event, node);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return fill_memory_ops(p.memOp, node);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (result == CUDA_SUCCESS) node->ops.push_back(std::move(op));
  return result;
}

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, std::size_t count,
             CUgraphNodeParams* p) {
  Call call(false);
  if (call.error != CUDA_SUCCESS) return call.error;
  Graph* graph = find_graph(handle);
  if (out == nullptr || graph == nullptr || p == nullptr || (count != 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> before;
  for (std::size_t i = 0; i < count; ++i) {
    Node* node = find_node(dependencies[i]);
    if (node == nullptr || node->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    before.push_back(node);
  }
  Node filled;
  const bool conditional = p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  const CUresult result = conditional ? fill_condition(&p->conditional, *graph, &filled) : fill(*p, graph, &filled);
  if (result != CUDA_SUCCESS) return result;
  Node* node = add_node(graph, p->type, before);
  if (node == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  node->ops = std::move(filled.ops);
  node->event = filled.event;
  node->children = std::move(filled.children);
  node->condition = filled.condition;
  node->condition_value = filled.condition_value;
  *out = handle_of(node);
  if (conditional) {
    for (const auto& body : node->children) node->params.push_back(handle_of(body.get()));
    p->conditional.phGraph_out = reinterpret_cast<CUgraph*>(node->params.data());
  }
  return CUDA_SUCCESS;
}

// The node of that type behind a handle, in the graph itself, or its twin in `exec`.
constexpr int kAnyType = -1;
struct Found {
  Found(CUgraphNode handle, int type, CUgraphExec exec_handle = nullptr) {
    if (call.error != CUDA_SUCCESS) {
      error = call.error;
      return;
    }
    node = find_node(handle);
    if (node != nullptr && exec_handle != nullptr) {
      const Exec* exec = find_exec(exec_handle);
      const auto at = exec != nullptr ? exec->graph->copies.find(node) : decltype(exec->graph->copies.end()){};
      node = exec != nullptr && at != exec->graph->copies.end() ? at->second : nullptr;
    }
    const bool fits = node != nullptr && (type == kAnyType || node->type == type);
    error = fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  Call call{false};
  Node* node = nullptr;
  CUresult error;
};

// `exec` null: in the graph itself.
CUresult set(CUgraphExec exec, CUgraphNode handle, const CUgraphNodeParams& p) {
  const Found found(handle, p.type, exec);
  if (found.error != CUDA_SUCCESS) return found.error;
  Node filled;
  if (CUresult e = fill(p, nullptr, &filled); e != CUDA_SUCCESS) return e;
  Node* node = found.node;
  if (exec != nullptr) {  // what an executable graph cannot change
    if (p.type == CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_NOT_SUPPORTED;
    if (filled.ops.size() != node->ops.size()) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < node->ops.size(); ++i) {
      if (filled.ops[i].kind != node->ops[i].kind) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  node->ops = std::move(filled.ops);
  node->event = filled.event;
  if (p.type == CU_GRAPH_NODE_TYPE_GRAPH) node->children = std::move(filled.children);
  return CUDA_SUCCESS;
}

// ---- asking

void get_kernel(Node* node, CUDA_KERNEL_NODE_PARAMS_v3* out) {
  KernelWork& work = node->ops[0].kernel;
  node->params.clear();
  for (std::size_t offset : work.offsets) node->params.push_back(work.params.data() + offset);
  *out = {};
  out->func = reinterpret_cast<CUfunction>(const_cast<Function*>(work.function));
  out->gridDimX = work.shape.grid[0];
  out->gridDimY = work.shape.grid[1];
  out->gridDimZ = work.shape.grid[2];
  out->blockDimX = work.shape.block[0];
  out->blockDimY = work.shape.block[1];
  out->blockDimZ = work.shape.block[2];
  out->sharedMemBytes = work.shape.shared;
  out->kernelParams = node->params.data();
}

void get_copy(const Node& node, CUDA_MEMCPY3D* out) {
  const CopyWork& work = node.ops[0].copy;
  *out = {};
  const auto is_device = [](const void* at) {
    return find_allocation(reinterpret_cast<std::uint64_t>(at), 0) != nullptr;
  };
  out->srcMemoryType = is_device(work.from) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  out->dstMemoryType = is_device(work.to) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  out->srcHost = work.from;
  out->dstHost = work.to;
  out->srcDevice = reinterpret_cast<CUdeviceptr>(work.from);
  out->dstDevice = reinterpret_cast<CUdeviceptr>(work.to);
  out->WidthInBytes = work.width;
  out->Height = work.height;
  out->Depth = work.depth;
  out->srcPitch = work.from_pitch;
  out->dstPitch = work.to_pitch;
  if (work.from_pitch != 0) out->srcHeight = work.from_slice / work.from_pitch;
  if (work.to_pitch != 0) out->dstHeight = work.to_slice / work.to_pitch;
}

void get_memory_ops(Node* node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1* out) {
  node->memory_ops.clear();
  for (const Op& op : node->ops) {
    CUstreamBatchMemOpParams p = {};
    const auto address = reinterpret_cast<CUdeviceptr>(op.word);
    if (op.kind == Op::Kind::kWaitValue) {
      p.operation = op.wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
      p.waitValue.address = address;
      p.waitValue.value64 = op.value;
      p.waitValue.flags = op.compare;
    } else {
      p.operation = op.wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
      p.writeValue.address = address;
      p.writeValue.value64 = op.value;
    }
    node->memory_ops.push_back(p);
  }
  *out = {};
  out->count = static_cast<unsigned>(node->memory_ops.size());
  out->paramArray = node->memory_ops.data();
}

// ---- one kind's parameters as those of all kinds

CUgraphNodeParams all(CUgraphNodeType type) {
  CUgraphNodeParams p = {};
  p.type = type;
  return p;
}
template <class Params>
CUgraphNodeParams of_kernel(const Params* p) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_KERNEL);
  out.kernel = {p->func,      p->gridDimX,       p->gridDimY,     p->gridDimZ, p->blockDimX, p->blockDimY,
                p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra,    nullptr,      nullptr};
  if constexpr (requires { p->kern; }) out.kernel.kern = p->kern;
  return out;
}
CUgraphNodeParams of_copy(const CUDA_MEMCPY3D* p) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_MEMCPY);
  out.memcpy.copyParams = *p;
  return out;
}
CUgraphNodeParams of_memset(const CUDA_MEMSET_NODE_PARAMS* p) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_MEMSET);
  out.memset = {p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, nullptr};
  return out;
}
CUgraphNodeParams of_host(const CUDA_HOST_NODE_PARAMS* p) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_HOST);
  out.host = {p->fn, p->userData};
  return out;
}
CUgraphNodeParams of_memory_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  out.memOp = {p->ctx, p->count, p->paramArray, p->flags};
  return out;
}
CUgraphNodeParams of_child(CUgraph graph) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_GRAPH);
  out.graph.graph = graph;
  return out;
}
CUgraphNodeParams of_record(CUevent event) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  out.eventRecord.event = event;
  return out;
}
CUgraphNodeParams of_wait(CUevent event) {
  CUgraphNodeParams out = all(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  out.eventWait.event = event;
  return out;
}

}  // namespace

EMU_API CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, std::size_t count,
                                CUgraphNodeParams* p) {
  return add(out, graph, before, count, p);
}
EMU_API CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, const CUgraphEdgeData*,
                                   std::size_t count, CUgraphNodeParams* p) {
  return add(out, graph, before, count, p);
}
EMU_API CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* p) {
  return p == nullptr ? CUDA_ERROR_INVALID_VALUE : set(nullptr, node, *p);
}
EMU_API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p) {
  return p == nullptr || exec == nullptr ? CUDA_ERROR_INVALID_VALUE : set(exec, node, *p);
}

#define EMU_ADD_NODE(name, params, last, given, of)                                                                   \
  EMU_API CUresult name(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, std::size_t count, params last) { \
    if (!(given)) return CUDA_ERROR_INVALID_VALUE;                                                                    \
    CUgraphNodeParams all_of_it = of(p);                                                                              \
    return add(out, graph, before, count, &all_of_it);                                                                \
  }
#define EMU_SET_NODE(name, params, of)                                \
  EMU_API CUresult name(CUgraphNode node, params p) {                 \
    return !p ? CUDA_ERROR_INVALID_VALUE : set(nullptr, node, of(p)); \
  }
#define EMU_SET_EXEC(name, params, last, of)                                          \
  EMU_API CUresult name(CUgraphExec exec, CUgraphNode node, params p last) {          \
    return !p || exec == nullptr ? CUDA_ERROR_INVALID_VALUE : set(exec, node, of(p)); \
  }
#define EMU_COMMA_CONTEXT p, CUcontext

EMU_ADD_NODE(cuGraphAddKernelNode, const CUDA_KERNEL_NODE_PARAMS_v1*, p, p, of_kernel)
EMU_ADD_NODE(cuGraphAddKernelNode_v2, const CUDA_KERNEL_NODE_PARAMS_v2*, p, p, of_kernel)
EMU_ADD_NODE(cuGraphAddMemcpyNode, const CUDA_MEMCPY3D*, EMU_COMMA_CONTEXT, p, of_copy)
EMU_ADD_NODE(cuGraphAddMemsetNode, const CUDA_MEMSET_NODE_PARAMS*, EMU_COMMA_CONTEXT, p, of_memset)
EMU_ADD_NODE(cuGraphAddHostNode, const CUDA_HOST_NODE_PARAMS*, p, p, of_host)
EMU_ADD_NODE(cuGraphAddChildGraphNode, CUgraph, p, p, of_child)
EMU_ADD_NODE(cuGraphAddEventRecordNode, CUevent, p, p, of_record)
EMU_ADD_NODE(cuGraphAddEventWaitNode, CUevent, p, p, of_wait)
EMU_ADD_NODE(cuGraphAddBatchMemOpNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS*, p, p, of_memory_ops)
EMU_API CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, std::size_t count) {
  CUgraphNodeParams empty = all(CU_GRAPH_NODE_TYPE_EMPTY);
  return add(out, graph, before, count, &empty);
}

EMU_SET_NODE(cuGraphKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1*, of_kernel)
EMU_SET_NODE(cuGraphKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS_v2*, of_kernel)
EMU_SET_NODE(cuGraphMemcpyNodeSetParams, const CUDA_MEMCPY3D*, of_copy)
EMU_SET_NODE(cuGraphMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS*, of_memset)
EMU_SET_NODE(cuGraphHostNodeSetParams, const CUDA_HOST_NODE_PARAMS*, of_host)
EMU_SET_NODE(cuGraphEventRecordNodeSetEvent, CUevent, of_record)
EMU_SET_NODE(cuGraphEventWaitNodeSetEvent, CUevent, of_wait)
EMU_SET_NODE(cuGraphBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS*, of_memory_ops)

#define EMU_NOTHING
#define EMU_CONTEXT , CUcontext
EMU_SET_EXEC(cuGraphExecKernelNodeSetParams, const CUDA_KERNEL_NODE_PARAMS_v1*, EMU_NOTHING, of_kernel)
EMU_SET_EXEC(cuGraphExecKernelNodeSetParams_v2, const CUDA_KERNEL_NODE_PARAMS_v2*, EMU_NOTHING, of_kernel)
EMU_SET_EXEC(cuGraphExecMemcpyNodeSetParams, const CUDA_MEMCPY3D*, EMU_CONTEXT, of_copy)
EMU_SET_EXEC(cuGraphExecMemsetNodeSetParams, const CUDA_MEMSET_NODE_PARAMS*, EMU_CONTEXT, of_memset)
EMU_SET_EXEC(cuGraphExecHostNodeSetParams, const CUDA_HOST_NODE_PARAMS*, EMU_NOTHING, of_host)
EMU_SET_EXEC(cuGraphExecEventRecordNodeSetEvent, CUevent, EMU_NOTHING, of_record)
EMU_SET_EXEC(cuGraphExecEventWaitNodeSetEvent, CUevent, EMU_NOTHING, of_wait)
EMU_SET_EXEC(cuGraphExecBatchMemOpNodeSetParams, const CUDA_BATCH_MEM_OP_NODE_PARAMS*, EMU_NOTHING, of_memory_ops)

// EMU_GET_NODE(name, type of node, what is asked for, how it is got from `node` into `out`)
#define EMU_GET_NODE(name, kind, params, ...)                               \
  EMU_API CUresult name(CUgraphNode handle, params* out) {                  \
    const Found found(handle, kind);                                        \
    if (found.error != CUDA_SUCCESS) return found.error;                    \
    Node* node = found.node;                                                \
    if (out == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE; \
    __VA_ARGS__;                                                            \
    return CUDA_SUCCESS;                                                    \
  }
EMU_GET_NODE(cuGraphKernelNodeGetParams, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS_v1, {
  CUDA_KERNEL_NODE_PARAMS_v3 p;
  get_kernel(node, &p);
  *out = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
          p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, nullptr};
})
EMU_GET_NODE(cuGraphKernelNodeGetParams_v2, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS_v2, {
  CUDA_KERNEL_NODE_PARAMS_v3 p;
  get_kernel(node, &p);
  *out = {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, nullptr,    nullptr,     nullptr};
})
EMU_GET_NODE(cuGraphMemcpyNodeGetParams, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, get_copy(*node, out))
EMU_GET_NODE(cuGraphMemsetNodeGetParams, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, {
  const FillWork& fill = node->ops[0].fill;
  *out = {reinterpret_cast<CUdeviceptr>(fill.to), fill.pitch, fill.value, fill.element, fill.count, fill.height};
})
EMU_GET_NODE(cuGraphHostNodeGetParams, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS, {
  *out = {node->ops[0].host, node->ops[0].user};
})
EMU_GET_NODE(cuGraphEventRecordNodeGetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CUevent, *out = node->event)
EMU_GET_NODE(cuGraphEventWaitNodeGetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUevent, *out = node->event)
EMU_GET_NODE(cuGraphBatchMemOpNodeGetParams, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS,
             get_memory_ops(node, out))

// Only what does something on the SMs or a copy engine can be switched off.
EMU_API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned enabled) {
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Found found(handle, kAnyType, exec);
  if (found.error != CUDA_SUCCESS) return found.error;
  if (found.node->type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  found.node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}
EMU_API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned* enabled) {
  if (exec == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Found found(handle, kAnyType, exec);
  if (found.error != CUDA_SUCCESS) return found.error;
  if (found.node->type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  *enabled = found.node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}
