// Stream capture: what goes into a graph instead of a stream, and what breaks a capture.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "both.h"
#include "graph.h"
#include "work.h"

namespace sluice::emulator {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

CUresult break_capture(Capture& capture, CUresult error) {
  capture.is_valid = false;
  return error;
}

// What the default stream would come to depend on.
Capture* capture_of_blocking_streams(const Context* context) {
  for (const auto& capture : state().captures) {
    for (const Stream* stream : capture->streams) {
      if (stream->context == context && stream->blocking()) return capture.get();
    }
  }
  return nullptr;
}

CUgraphNodeType type_of(Op::Kind kind) {
  switch (kind) {
    case Op::Kind::kKernel:
      return CU_GRAPH_NODE_TYPE_KERNEL;
    case Op::Kind::kFill:
      return CU_GRAPH_NODE_TYPE_MEMSET;
    case Op::Kind::kCopy:
      return CU_GRAPH_NODE_TYPE_MEMCPY;
    case Op::Kind::kHost:
      return CU_GRAPH_NODE_TYPE_HOST;
    default:
      return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  }
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  for (Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->tips.clear();
  }
  capture->streams.clear();
  std::erase(state().captures, capture);
}

// Whether all that the other streams captured lies before the origin's latest.
bool is_joined(const Capture& capture) {
  std::unordered_set<const Node*> reached;
  std::vector<const Node*> open(capture.origin->tips.begin(), capture.origin->tips.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (reached.insert(node).second) open.insert(open.end(), node->before.begin(), node->before.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->tips.begin(), stream->tips.end(), [&](Node* tip) { return reached.count(tip) != 0; });
  });
}

}  // namespace

CUresult forbid_unsafe() {
  if (state().captures.empty() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  const pid_t self = this_thread();
  for (const auto& capture : state().captures) {
    const bool own = capture->thread == self && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool others = capture->thread != self && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                        thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || others) result = break_capture(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult forbid(Stream* stream) {
  if (stream->capture != nullptr) return break_capture(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Capture* other = stream->legacy ? capture_of_blocking_streams(stream->context) : nullptr;
  return other != nullptr ? break_capture(*other, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

CUresult forbid_waiting(Context* context) {
  for (const auto& capture : state().captures) {
    for (const Stream* stream : capture->streams) {
      if (stream->context == context) return break_capture(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return CUDA_SUCCESS;
}

CUresult may_submit(Stream* stream) {
  if (stream->capture == nullptr) return forbid(stream);
  return stream->capture->is_valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult put(Stream* stream, Op op, Call& call, std::uint64_t* id) {
  if (id != nullptr) *id = 0;
  if (stream->capture == nullptr) {
    const std::uint64_t submitted = submit(stream, std::make_unique<Op>(std::move(op)), call.lock);
    if (id != nullptr) *id = submitted;
    return CUDA_SUCCESS;
  }
  if (op.callback != nullptr || op.kind == Op::Kind::kFree) return forbid(stream);
  Node* node = nullptr;
  if (CUresult e = capture_node(stream, type_of(op.kind), &node); e != CUDA_SUCCESS) return e;
  node->ops.push_back(std::move(op));
  return CUDA_SUCCESS;
}

CUresult capture_node(Stream* stream, CUgraphNodeType type, Node** out) {
  Node* node = add_node(stream->capture->graph, type, stream->tips);
  if (node == nullptr) return break_capture(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  stream->tips = {node};
  if (out != nullptr) *out = node;
  return CUDA_SUCCESS;
}

void join_capture(Stream* stream, const std::shared_ptr<Capture>& capture, const std::vector<Node*>& tips) {
  if (stream->capture == nullptr) {
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  for (Node* tip : tips) {
    if (std::find(stream->tips.begin(), stream->tips.end(), tip) == stream->tips.end()) stream->tips.push_back(tip);
  }
}

void leave_capture(Stream* stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return;
  capture->is_valid = false;
  std::erase(capture->streams, stream);
  stream->capture = nullptr;
  stream->tips.clear();
  if (capture->origin == stream) end_capture(capture);
}

}  // namespace sluice::emulator

using namespace sluice::emulator;

namespace {

CUresult begin(Stream* stream, CUstreamCaptureMode mode, Graph* into, const std::vector<Node*>& tips) {
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = state().next_id++;
  capture->mode = mode;
  capture->thread = this_thread();
  capture->origin = stream;
  if (into == nullptr) capture->own = std::make_unique<Graph>();
  capture->graph = into != nullptr ? into : capture->own.get();
  state().captures.push_back(capture);
  join_capture(stream, capture, tips);
  return CUDA_SUCCESS;
}

CUresult begin_capture(bool per_thread, CUstream stream, CUstreamCaptureMode mode) {
  EMU_STREAM(stream);
  return begin(at, mode, nullptr, {});
}

// False where one of them is none.
bool nodes_of(const CUgraphNode* handles, std::size_t count, std::vector<Node*>* out) {
  if (handles == nullptr && count != 0) return false;
  for (std::size_t i = 0; i < count; ++i) {
    Node* node = find_node(handles[i]);
    if (node == nullptr) return false;
    out->push_back(node);
  }
  return true;
}

CUresult begin_to_graph(bool per_thread, CUstream stream, CUgraph handle, const CUgraphNode* nodes,
                        const CUgraphEdgeData*, std::size_t count, CUstreamCaptureMode mode) {
  EMU_STREAM(stream);
  std::vector<Node*> tips;
  Graph* graph = find_graph(handle);
  if (graph == nullptr || !nodes_of(nodes, count, &tips)) return CUDA_ERROR_INVALID_VALUE;
  return begin(at, mode, graph, tips);
}

CUresult end(bool per_thread, CUstream stream, CUgraph* out) {
  EMU_STREAM(stream);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const std::shared_ptr<Capture> capture = at->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->origin != at) return break_capture(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  const bool joined = is_joined(*capture);
  end_capture(capture);
  if (!capture->is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *out = handle_of(capture->graph);
  if (capture->own != nullptr) state().graphs.emplace(capture->graph, std::move(capture->own));
  return CUDA_SUCCESS;
}

CUresult is_capturing(bool per_thread, CUstream stream, CUstreamCaptureStatus* status) {
  EMU_STREAM(stream);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (at->capture != nullptr)
    *status = at->capture->is_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  // Asking breaks nothing.
  return at->legacy && capture_of_blocking_streams(at->context) != nullptr ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                                           : CUDA_SUCCESS;
}

CUresult info(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  if (CUresult e = is_capturing(per_thread, stream, status); e != CUDA_SUCCESS) return e;
  EMU_STREAM(stream);
  if (id != nullptr && at->capture != nullptr) *id = at->capture->id;
  return CUDA_SUCCESS;
}

CUresult info_v2(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                 const CUgraphNode** nodes, std::size_t* count) {
  if (CUresult e = info(per_thread, stream, status, id); e != CUDA_SUCCESS) return e;
  EMU_STREAM(stream);
  if (at->capture == nullptr) return CUDA_SUCCESS;
  if (graph != nullptr) *graph = handle_of(at->capture->graph);
  static_assert(sizeof(CUgraphNode) == sizeof(void*));  // what the tips are, too
  if (nodes != nullptr) *nodes = reinterpret_cast<const CUgraphNode*>(at->tips.data());
  if (count != nullptr) *count = at->tips.size();
  return CUDA_SUCCESS;
}

CUresult info_v3(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                 const CUgraphNode** nodes, const CUgraphEdgeData** edges, std::size_t* count) {
  std::size_t known = 0;
  if (count == nullptr) count = &known;
  if (CUresult e = info_v2(per_thread, stream, status, id, graph, nodes, count); e != CUDA_SUCCESS) return e;
  static std::vector<CUgraphEdgeData>& plain = *new std::vector<CUgraphEdgeData>(1024);
  if (edges != nullptr) *edges = plain.data();  // all of them are
  return *count <= plain.size() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult update_dependencies(bool per_thread, CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  EMU_STREAM(stream);
  if (at->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!at->capture->is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<Node*> tips;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || !nodes_of(nodes, count, &tips)) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) at->tips.clear();
  join_capture(at, at->capture, tips);
  return CUDA_SUCCESS;
}

CUresult update_dependencies_v2(bool per_thread, CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*,
                                std::size_t count, unsigned flags) {
  return update_dependencies(per_thread, stream, nodes, count, flags);
}

}  // namespace

#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies

EMU_BOTH(cuStreamBeginCapture, begin_capture, (CUstream s), (s, CU_STREAM_CAPTURE_MODE_GLOBAL))
EMU_BOTH(cuStreamBeginCapture_v2, begin_capture, (CUstream s, CUstreamCaptureMode m), (s, m))
EMU_BOTH(cuStreamBeginCaptureToGraph, begin_to_graph,
         (CUstream s, CUgraph g, const CUgraphNode* d, const CUgraphEdgeData* e, std::size_t n, CUstreamCaptureMode m),
         (s, g, d, e, n, m))
EMU_BOTH(cuStreamEndCapture, end, (CUstream s, CUgraph* g), (s, g))
EMU_BOTH(cuStreamIsCapturing, is_capturing, (CUstream s, CUstreamCaptureStatus* st), (s, st))
EMU_BOTH(cuStreamGetCaptureInfo, info, (CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id), (s, st, id))
EMU_BOTH(cuStreamGetCaptureInfo_v2, info_v2,
         (CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g, const CUgraphNode** d, std::size_t* n),
         (s, st, id, g, d, n))
EMU_BOTH(cuStreamGetCaptureInfo_v3, info_v3,
         (CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g, const CUgraphNode** d,
          const CUgraphEdgeData** e, std::size_t* n),
         (s, st, id, g, d, e, n))
EMU_BOTH(cuStreamUpdateCaptureDependencies, update_dependencies,
         (CUstream s, CUgraphNode* d, std::size_t n, unsigned f), (s, d, n, f))
EMU_BOTH(cuStreamUpdateCaptureDependencies_v2, update_dependencies_v2,
         (CUstream s, CUgraphNode* d, const CUgraphEdgeData* e, std::size_t n, unsigned f), (s, d, e, n, f))

EMU_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (CUresult e = ready(); e != CUDA_SUCCESS) return e;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}
