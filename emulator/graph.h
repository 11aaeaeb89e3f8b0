// Graphs, what captures them, and what executes them.
//
// A graph's nodes hold the very operations that a stream takes (state.h). An executable graph is a copy of a graph,
// flattened and cut into lanes: rows of nodes that depend on each other. A launch submits lane 0 to the stream and the
// others to streams of its own, tied together by events; so the executor knows nothing of graphs.
//
// What it takes: a kernel that depends on nothing costs what a launch into a stream does, any other at least
// Profile::graph_node_ns. Everything else costs what it costs in a stream.
//
// Guarded by State::mutex.
#pragma once

#include "state.h"

namespace sluice::emulator {

struct Node {
  Graph* graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<Node*> before, after;              // what it depends on, in the order given; and what depends on it
  std::vector<Op> ops;                           // one; of memory operations as many as there are
  CUevent event = nullptr;                       // of event nodes
  std::vector<std::unique_ptr<Graph>> children;  // of a child graph node one, of a conditional node its bodies
  CUgraphConditionalNodeType condition = CU_GRAPH_COND_TYPE_IF;
  unsigned condition_value = 0;
  bool enabled = true;  // in an executable graph
  // What the calls that ask for parameters point into.
  std::vector<void*> params;
  std::vector<CUstreamBatchMemOpParams> memory_ops;
};

struct Graph {
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::vector<std::unique_ptr<Node>> nodes;
  bool is_body = false;  // of a conditional node, or inside of such: takes no host, event and memory operation nodes
  std::unordered_map<const Node*, Node*> copies;                      // of a copy: from the nodes of the original
  std::unordered_map<CUgraphConditionalHandle, unsigned> conditions;  // their default values
};

// The graph or node of that handle, null if there is none (any more).
Graph* find_graph(CUgraph handle);
Node* find_node(CUgraphNode handle);
Exec* find_exec(CUgraphExec handle);
inline CUgraph handle_of(Graph* graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphNode handle_of(Node* node) { return reinterpret_cast<CUgraphNode>(node); }
inline CUgraphExec handle_of(Exec* exec) { return reinterpret_cast<CUgraphExec>(exec); }

// Adds a node behind `before`. Null: the graph takes none of this type.
Node* add_node(Graph* graph, CUgraphNodeType type, const std::vector<Node*>& before);
void connect(Node* from, Node* to);
void disconnect(Node* from, Node* to);
void destroy_node(Node* node);
// A copy, with `copies` filled in through all levels. Copies carry on from copies: the keys are the given graph's
// nodes.
std::unique_ptr<Graph> copy_of(const Graph& graph);
// The nodes, each behind what it depends on, else in the order in which they were added; empty if there is a cycle.
std::vector<Node*> in_order(const Graph& graph);

// ---- capture (capture.cc) -------------------------------------------------------------------------------------

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  pid_t thread = 0;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;  // the origin and those that joined
  std::unique_ptr<Graph> own;    // null when it captures into a graph of the program's
  Graph* graph = nullptr;
  bool is_valid = true;
};

// Whether the calling thread may make a call that could break a capture; if not, that capture is broken by it.
CUresult forbid_unsafe();
// The stream goes, and its capture is lost.
void leave_capture(Stream* stream);
void join_capture(Stream* stream, const std::shared_ptr<Capture>& capture, const std::vector<Node*>& tips);
// Adds a node behind the stream's and makes it the stream's latest. An error is the capture's end, too.
CUresult capture_node(Stream* stream, CUgraphNodeType type, Node** out);

// ---- executable graphs (exec.cc) ------------------------------------------------------------------------------

struct Exec {
  std::unique_ptr<Graph> graph;  // a copy; `copies` leads from the program's nodes here
  unsigned long long flags = 0;
  struct Step {
    Node* node = nullptr;
    int lane = 0;
    std::vector<int> waits;  // earlier steps of other lanes
    bool is_root = false;
    bool is_awaited = false;  // by another lane, or by the launch's end
  };
  std::vector<Step> steps;  // each behind what it depends on
  int lane_count = 0;
  Context* context = nullptr;    // of `lanes`
  std::vector<Stream*> lanes;    // all but the first, which is the stream of the launch
  std::shared_ptr<Event> ended;  // recorded behind every launch: it never runs twice at once
};

CUresult instantiate(const Graph& graph, unsigned long long flags, Exec** out, Node** bad = nullptr);
// REQUIRES: the stream is not capturing.
CUresult launch(Exec* exec, Stream* stream, std::unique_lock<std::mutex>& lock);
// Its lanes go when their work is done.
void drop_lanes(Exec* exec);
// A context ends, and the lanes in it.
void forget_lanes(Context* context);
// Takes over the parameters of `graph`, if it has the same nodes and edges.
CUgraphExecUpdateResult update(Exec* exec, const Graph& graph, Node** bad);

}  // namespace sluice::emulator
