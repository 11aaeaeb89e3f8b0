// The structure of graphs.
#include "graph.h"

#include <algorithm>

namespace sluice::emulator {
namespace {

// What a handle may mean; a graph inside of a node counts as well.
std::unordered_set<const Graph*>& known_graphs() {
  static std::unordered_set<const Graph*>& once = *new std::unordered_set<const Graph*>;
  return once;
}
std::unordered_set<const Node*>& known_nodes() {
  static std::unordered_set<const Node*>& once = *new std::unordered_set<const Node*>;
  return once;
}

bool goes_into_a_body(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

}  // namespace

Graph::Graph() { known_graphs().insert(this); }
Graph::~Graph() {
  for (const auto& node : nodes) known_nodes().erase(node.get());
  known_graphs().erase(this);
}

Graph* find_graph(CUgraph handle) {
  auto* graph = reinterpret_cast<Graph*>(handle);
  return known_graphs().count(graph) != 0 ? graph : nullptr;
}
Node* find_node(CUgraphNode handle) {
  auto* node = reinterpret_cast<Node*>(handle);
  return known_nodes().count(node) != 0 ? node : nullptr;
}
Exec* find_exec(CUgraphExec handle) {
  auto* exec = reinterpret_cast<Exec*>(handle);
  return state().execs.count(exec) != 0 ? exec : nullptr;
}

Node* add_node(Graph* graph, CUgraphNodeType type, const std::vector<Node*>& before) {
  if (graph->is_body && !goes_into_a_body(type)) return nullptr;
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->graph = graph;
  node->type = type;
  known_nodes().insert(node);
  graph->nodes.push_back(std::move(owned));
  for (Node* from : before) connect(from, node);
  return node;
}

void connect(Node* from, Node* to) {
  if (std::find(to->before.begin(), to->before.end(), from) != to->before.end()) return;
  to->before.push_back(from);
  from->after.push_back(to);
}

void disconnect(Node* from, Node* to) {
  std::erase(to->before, from);
  std::erase(from->after, to);
}

void destroy_node(Node* node) {
  for (Node* other : node->before) std::erase(other->after, node);
  for (Node* other : node->after) std::erase(other->before, node);
  known_nodes().erase(node);
  std::erase_if(node->graph->nodes, [&](const auto& owned) { return owned.get() == node; });
}

std::unique_ptr<Graph> copy_of(const Graph& graph) {
  auto copy = std::make_unique<Graph>();
  copy->is_body = graph.is_body;
  copy->conditions = graph.conditions;
  for (const auto& node : graph.nodes) {
    Node* made = add_node(copy.get(), node->type, {});
    made->ops = node->ops;
    made->event = node->event;
    made->condition = node->condition;
    made->condition_value = node->condition_value;
    made->enabled = node->enabled;
    copy->copies.emplace(node.get(), made);
    for (const auto& child : node->children) {
      made->children.push_back(copy_of(*child));
      copy->copies.insert(made->children.back()->copies.begin(), made->children.back()->copies.end());
    }
  }
  for (const auto& node : graph.nodes) {
    for (Node* from : node->before) connect(copy->copies.at(from), copy->copies.at(node.get()));
  }
  return copy;
}

std::vector<Node*> in_order(const Graph& graph) {
  std::unordered_map<const Node*, std::size_t> open;
  std::vector<Node*> order;
  for (const auto& node : graph.nodes) open[node.get()] = node->before.size();
  // By rounds, so that a graph whose nodes were added in order keeps it.
  while (order.size() < graph.nodes.size()) {
    const std::size_t before = order.size();
    for (const auto& node : graph.nodes) {
      auto at = open.find(node.get());
      if (at == open.end() || at->second != 0) continue;
      open.erase(at);
      order.push_back(node.get());
      for (const Node* next : node->after) --open[next];
    }
    if (order.size() == before) return {};
  }
  return order;
}

}  // namespace sluice::emulator
