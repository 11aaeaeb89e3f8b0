// Executable graphs: cut into lanes, launched, updated.
#include <algorithm>
#include <map>
#include <set>

#include "graph.h"

namespace sluice::emulator {
namespace {

// Wider graphs share lanes, which only orders what need not be.
constexpr int kLanes = 32;

// The rows of nodes of one graph, its child graphs included.
class Cutter {
 public:
  explicit Cutter(Exec* exec) : exec_(*exec) {}

  // Returns the steps that everything behind the graph depends on; `entry`: those that its roots depend on.
  std::set<int> add(const Graph& graph, const std::set<int>& entry) {
    std::unordered_map<const Node*, std::set<int>> ends;
    std::set<int> all;
    for (Node* node : in_order(graph)) {
      std::set<int> waits;
      for (const Node* from : node->before) waits.insert(ends[from].begin(), ends[from].end());
      if (node->before.empty()) waits = entry;
      ends[node] = inside_of(node, waits);
      if (node->after.empty()) all.insert(ends[node].begin(), ends[node].end());
    }
    return graph.nodes.empty() ? entry : all;
  }

 private:
  std::set<int> inside_of(Node* node, const std::set<int>& waits) {
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) return add(*node->children[0], waits);
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      // No kernel of the emulator's can set the value, so it is the default.
      const std::size_t value = node->condition_value;
      const std::size_t body =
          node->condition == CU_GRAPH_COND_TYPE_SWITCH ? value : static_cast<std::size_t>(value != 0 ? 0 : 1);
      return body < node->children.size() ? add(*node->children[body], waits) : waits;
    }
    return {step(node, waits)};
  }

  int step(Node* node, const std::set<int>& waits) {
    const int index = static_cast<int>(exec_.steps.size());
    Exec::Step step;
    step.node = node;
    step.is_root = waits.empty();
    step.lane = lane_for(waits, index);
    for (int other : waits) {
      if (exec_.steps[static_cast<std::size_t>(other)].lane == step.lane) continue;  // it comes before anyway
      step.waits.push_back(other);
      exec_.steps[static_cast<std::size_t>(other)].is_awaited = true;
    }
    exec_.steps.push_back(std::move(step));
    last_[static_cast<std::size_t>(exec_.steps.back().lane)] = index;
    return index;
  }

  int lane_for(const std::set<int>& waits, int index) {
    for (int other : waits) {
      const int lane = exec_.steps[static_cast<std::size_t>(other)].lane;
      if (last_[static_cast<std::size_t>(lane)] == other) return lane;
    }
    if (exec_.lane_count == kLanes) return index % kLanes;
    last_.push_back(-1);
    return exec_.lane_count++;
  }

  Exec& exec_;
  std::vector<int> last_;  // each lane's latest step
};

bool has_cycle(const Graph& graph) {
  if (!graph.nodes.empty() && in_order(graph).empty()) return true;
  for (const auto& node : graph.nodes) {
    for (const auto& child : node->children) {
      if (has_cycle(*child)) return true;
    }
  }
  return false;
}

// The first node that keeps the graph from being launched from the device.
Node* not_for_the_device(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    const bool fine = node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                      node->type == CU_GRAPH_NODE_TYPE_MEMSET || node->type == CU_GRAPH_NODE_TYPE_GRAPH ||
                      node->type == CU_GRAPH_NODE_TYPE_EMPTY;
    if (!fine) return node.get();
    for (const auto& child : node->children) {
      if (Node* bad = not_for_the_device(*child)) return bad;
    }
  }
  return nullptr;
}

// No kernel of the emulator's could end it.
Node* endless_loop(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && node->condition == CU_GRAPH_COND_TYPE_WHILE &&
        node->condition_value != 0) {
      return node.get();
    }
    for (const auto& child : node->children) {
      if (Node* bad = endless_loop(*child)) return bad;
    }
  }
  return nullptr;
}

void cut(Exec* exec) {
  exec->steps.clear();
  exec->lane_count = 0;
  Cutter(exec).add(*exec->graph, {});
}

std::shared_ptr<Event> new_event(Context* context) {
  auto event = std::make_shared<Event>();
  event->context = context;
  return event;
}

void push_record(Stream* stream, std::shared_ptr<Event> event) {
  auto op = std::make_unique<Op>();
  op->kind = Op::Kind::kRecord;
  op->number = ++event->recorded;
  op->event = std::move(event);
  push(stream, std::move(op));
}

void push_wait(Stream* stream, std::shared_ptr<Event> event, std::uint64_t number) {
  if (event_done(*event, number)) return;
  auto op = std::make_unique<Op>();
  op->kind = Op::Kind::kWaitEvent;
  op->number = number;
  op->event = std::move(event);
  push(stream, std::move(op));
}

void push_node(const Exec::Step& step, Stream* stream) {
  const Node& node = *step.node;
  if (!node.enabled) return;
  if (node.event != nullptr) {
    const auto at = state().events.find(node.event);
    if (at == state().events.end()) return;
    if (node.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      push_record(stream, at->second);
    } else {
      push_wait(stream, at->second, event_recorded(*at->second));
    }
    return;
  }
  const Settings& s = *state().settings;
  for (const Op& op : node.ops) {
    auto copy = std::make_unique<Op>(op);
    if (copy->kind == Op::Kind::kKernel || copy->kind == Op::Kind::kFill) {
      const std::uint64_t floor = step.is_root ? s.profile.launch_floor_ns : s.profile.graph_node_ns;
      copy->cost_ns = std::max(copy->work_ns, s.real(static_cast<double>(floor)));
    }
    push(stream, std::move(copy));
  }
}

// Parameters that a graph already made executable takes over. `to` is the executable's node.
CUgraphExecUpdateResult take_over(const Node& from, Node* to) {
  if (from.type != to->type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  if (from.ops.size() != to->ops.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  for (std::size_t i = 0; i < from.ops.size(); ++i) {
    if (from.ops[i].kind != to->ops[i].kind || from.ops[i].wide != to->ops[i].wide) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
  }
  to->ops = from.ops;
  to->event = from.event;
  to->condition_value = from.condition_value;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// Nodes are compared in the order in which they were added.
CUgraphExecUpdateResult compare(const Graph& from, const Graph& to, Node** bad,
                                std::vector<std::pair<const Node*, Node*>>* pairs) {
  if (from.nodes.size() != to.nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  std::unordered_map<const Node*, const Node*> partner;
  for (std::size_t i = 0; i < from.nodes.size(); ++i) {
    Node* a = from.nodes[i].get();
    Node* b = to.nodes[i].get();
    partner[a] = b;
    pairs->emplace_back(a, b);
    *bad = a;
    if (a->type != b->type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (a->before.size() != b->before.size() || a->children.size() != b->children.size()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    std::set<const Node*> wanted, found(b->before.begin(), b->before.end());
    for (const Node* before : a->before) {
      const auto at = partner.find(before);
      if (at != partner.end()) wanted.insert(at->second);
    }
    if (wanted != found) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (std::size_t child = 0; child < a->children.size(); ++child) {
      const CUgraphExecUpdateResult result = compare(*a->children[child], *b->children[child], bad, pairs);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
  }
  *bad = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace

CUresult instantiate(const Graph& graph, unsigned long long flags, Exec** out, Node** bad) {
  Node* ignored = nullptr;
  Node*& wrong = bad != nullptr ? *bad : ignored;
  wrong = nullptr;
  if (flags > 15 || graph.is_body || has_cycle(graph)) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) return CUDA_ERROR_INVALID_VALUE;
    wrong = not_for_the_device(graph);
    if (wrong != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  wrong = endless_loop(graph);
  if (wrong != nullptr) {
    say("a graph loops while a condition holds, which no kernel of the emulator can change");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto exec = std::make_unique<Exec>();
  exec->graph = copy_of(graph);
  exec->flags = flags;
  cut(exec.get());
  *out = exec.get();
  state().execs.emplace(*out, std::move(exec));
  return CUDA_SUCCESS;
}

CUresult launch(Exec* exec, Stream* stream, std::unique_lock<std::mutex>& lock) {
  await_room(stream, lock);
  Context* context = stream->context;
  if (exec->context != context) {
    drop_lanes(exec);
    exec->context = context;
    exec->ended = new_event(context);
  }
  while (static_cast<int>(exec->lanes.size()) < exec->lane_count - 1) {
    exec->lanes.push_back(add_stream(context, CU_STREAM_NON_BLOCKING, stream->priority));
  }
  for (Stream* lane : exec->lanes) lane->priority = stream->priority;
  push_wait(stream, exec->ended, exec->ended->recorded);
  std::shared_ptr<Event> begun;
  if (exec->lane_count > 1) push_record(stream, begun = new_event(context));
  std::vector<std::shared_ptr<Event>> done(exec->steps.size());
  std::vector<int> last(static_cast<std::size_t>(exec->lane_count), -1);
  for (std::size_t i = 0; i < exec->steps.size(); ++i) {
    const Exec::Step& step = exec->steps[i];
    const auto lane = static_cast<std::size_t>(step.lane);
    Stream* at = lane == 0 ? stream : exec->lanes[lane - 1];
    if (lane != 0 && last[lane] < 0) push_wait(at, begun, 1);
    for (int other : step.waits) push_wait(at, done[static_cast<std::size_t>(other)], 1);
    push_node(step, at);
    last[lane] = static_cast<int>(i);
    if (step.is_awaited) push_record(at, done[i] = new_event(context));
  }
  for (std::size_t lane = 1; lane < last.size(); ++lane) {
    if (exec->steps[static_cast<std::size_t>(last[lane])].is_awaited) continue;  // lane 0 comes behind it already
    const std::shared_ptr<Event> end = new_event(context);
    push_record(exec->lanes[lane - 1], end);
    push_wait(stream, end, 1);
  }
  push_record(stream, exec->ended);
  kick(*context->slot);
  return CUDA_SUCCESS;
}

void drop_lanes(Exec* exec) {
  for (Stream* lane : exec->lanes) lane->destroyed = true;
  if (!exec->lanes.empty()) kick(*exec->context->slot);
  exec->lanes.clear();
}

void forget_lanes(Context* context) {
  for (const auto& [key, exec] : state().execs) {
    if (exec->context != context) continue;
    exec->lanes.clear();
    exec->context = nullptr;
  }
}

CUgraphExecUpdateResult update(Exec* exec, const Graph& graph, Node** bad) {
  std::vector<std::pair<const Node*, Node*>> pairs;
  CUgraphExecUpdateResult result = compare(graph, *exec->graph, bad, &pairs);
  // Nothing is changed unless everything can be.
  for (const auto& [from, to] : pairs) {
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) break;
    Node trial = {};
    trial.type = to->type;
    trial.ops = to->ops;
    result = take_over(*from, &trial);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) *bad = const_cast<Node*>(from);
  }
  if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
  for (const auto& [from, to] : pairs) take_over(*from, to);
  cut(exec);  // conditions may choose other bodies
  return result;
}

}  // namespace sluice::emulator
