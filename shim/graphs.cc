#include "graphs.h"

#include <sys/mman.h>

#include <cstdlib>

#include "real.h"
#include "say.h"
#include "session.h"

namespace sluice::shim {
namespace {

using board::Whole;

// Captures that go on, by their ids, and graphs that were captured, by their handles. Direct-mapped: of a capture whose
// entry is lost the rest gets no gates, of a graph only the reason is unknown.
struct Capturing {
  std::atomic<cuuint64_t> id;
  std::atomic<std::uint32_t> whole;  // 1 + enum Whole; 0: it gets gates
  std::atomic<std::uint32_t> gates;
  std::atomic<CUcontext> context;  // of the stream where it began
  std::atomic<bool> skipped;       // a gate was due where none could be
};
struct Captured {
  std::atomic<CUgraph> graph;
  std::atomic<std::uint32_t> whole, gates;  // as above
};
struct Made {
  std::atomic<CUgraphExec> exec;
  std::atomic<std::uint32_t> gates, kernels;
  std::atomic<std::uint32_t> whole;  // 1 + enum Whole; 0: it is not
};
constexpr std::size_t kCaptures = 256, kGraphs = 1024, kProbes = 16;
Capturing capturing[kCaptures];
Captured captured[kGraphs];
Made made[kGraphs];
Mutex made_lock;

std::uint32_t because(Whole reason) { return static_cast<std::uint32_t>(reason) + 1; }

constexpr std::uint32_t kMostSpacing = 100'000;

std::uint32_t read_spacing(bool* is_given) {
  const char* text = std::getenv("SLUICE_GRAPH_SPACING");
  *is_given = text != nullptr && *text != '\0';
  if (!*is_given) return kGraphSpacing;
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (*end == '\0' && number >= 0 && number <= static_cast<long>(kMostSpacing))
    return static_cast<std::uint32_t>(number);
  static std::atomic<bool> said{false};
  say_once(&said, "SLUICE_GRAPH_SPACING is '%s'; it takes a number from 0 to %u; %u is used", text, kMostSpacing,
           kGraphSpacing);
  *is_given = false;
  return kGraphSpacing;
}

struct Spacing {
  std::uint32_t every;
  bool is_given;
};
// Read once; racing readers read the same.
Spacing spacing() {
  static std::atomic<std::uint64_t> known{0};
  std::uint64_t packed = known.load(std::memory_order_relaxed);
  if (packed == 0) {
    bool is_given = false;
    const std::uint32_t every = read_spacing(&is_given);
    packed = std::uint64_t{every} << 2 | (is_given ? 2u : 0u) | 1u;
    known.store(packed, std::memory_order_relaxed);
  }
  return {static_cast<std::uint32_t>(packed >> 2), (packed & 2) != 0};
}

template <class T, std::size_t kSize>
T& entry_of(T (&table)[kSize], std::uint64_t key) {
  return table[(key * 0x9e3779b97f4a7c15ull >> 32) % kSize];
}

Capturing* capture_of(cuuint64_t id) {
  Capturing& entry = entry_of(capturing, id);
  return entry.id.load() == id ? &entry : nullptr;
}

// The id of the capture that the stream takes part in, 0 if there is none or it is broken.
cuuint64_t capture_id(const StreamState& stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  if (real.stream_get_capture_info == nullptr ||
      real.stream_get_capture_info(stream.handle, &status, &id) != CUDA_SUCCESS)
    return 0;
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

// Whether the driver makes a node of the wait: 1, or -1 if not; 0 until tried.
std::atomic<int> driver_takes_gates{0};

// Tries it, once a process, on a stream of our own: should it not, the program's capture must not be what finds out.
void try_driver(const Session* session) {
  static Mutex lock;
  if (driver_takes_gates.load() != 0) return;
  Guard guard(lock);
  if (driver_takes_gates.load() != 0) return;
  bool takes = false;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  if (real.graphs && real.stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    if (real.stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS) {
      takes = enqueue_wait(session, stream, session->gate_address.load()) == CUDA_SUCCESS;
      takes = real.stream_end_capture(stream, &graph) == CUDA_SUCCESS && takes;
    }
    if (graph != nullptr) real.graph_destroy(graph);
    real.stream_destroy(stream);
  }
  driver_takes_gates.store(takes ? 1 : -1);
}

// The nodes of a graph, in memory of their own.
class Nodes {
 public:
  explicit Nodes(CUgraph graph) {
    std::size_t count = 0;
    if (real.graph_get_nodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return;
    bytes_ = count * sizeof(CUgraphNode);
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    nodes_ = static_cast<CUgraphNode*>(memory);
    if (real.graph_get_nodes(graph, nodes_, &count) == CUDA_SUCCESS) count_ = count;
  }
  ~Nodes() {
    if (nodes_ != nullptr) munmap(nodes_, bytes_);
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;
  CUgraphNode* begin() const { return nodes_; }
  CUgraphNode* end() const { return nodes_ + count_; }

 private:
  CUgraphNode* nodes_ = nullptr;
  std::size_t count_ = 0, bytes_ = 0;
};

bool is_gate_word(CUdeviceptr address) {
  for (int i = 0; const Session* session = session_at(i); ++i) {
    const CUdeviceptr word = session->word_address.load();
    if (word != 0 && address >= word && address < word + sizeof(board::GateBits)) return true;
  }
  return false;
}

CUgraphNodeType type_of(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  real.graph_node_get_type(node, &type);
  return type;
}

bool is_gate(CUgraphNode node) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS params = {};
  if (type_of(node) != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
      real.graph_batch_mem_op_get_params(node, &params) != CUDA_SUCCESS || params.count != 1)
    return false;
  const CUstreamBatchMemOpParams& op = params.paramArray[0];
  return (op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) &&
         is_gate_word(op.waitValue.address);
}

struct Counted {
  std::uint32_t gates = 0, kernels = 0;
};
void count(CUgraph graph, Counted* sum) {
  for (CUgraphNode node : Nodes(graph)) {
    const CUgraphNodeType type = type_of(node);
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      ++sum->kernels;
    } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      sum->kernels += graph_spacing() + 1;  // its bodies cannot be asked for, nor how often they run
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && real.graph_child_get_graph(node, &child) == CUDA_SUCCESS) {
      count(child, sum);
    } else if (is_gate(node)) {
      ++sum->gates;
    }
  }
}

// More are not seen on one side of a gate: it has one stream's work before it and behind.
constexpr std::size_t kNeighbours = 64;

bool remove_gate(CUgraph graph, CUgraphNode gate) {
  CUgraphNode before[kNeighbours], behind[kNeighbours];
  std::size_t before_count = 0, behind_count = 0;
  if (real.graph_node_get_dependencies(gate, nullptr, &before_count) != CUDA_SUCCESS ||
      real.graph_node_get_dependents(gate, nullptr, &behind_count) != CUDA_SUCCESS || before_count > kNeighbours ||
      behind_count > kNeighbours)
    return false;
  if ((before_count != 0 && real.graph_node_get_dependencies(gate, before, &before_count) != CUDA_SUCCESS) ||
      (behind_count != 0 && real.graph_node_get_dependents(gate, behind, &behind_count) != CUDA_SUCCESS))
    return false;
  for (std::size_t i = 0; i < before_count; ++i) {
    for (std::size_t j = 0; j < behind_count; ++j)
      real.graph_add_dependencies(graph, &before[i], &behind[j], 1);  // an edge that is there already is refused
  }
  return real.graph_destroy_node(gate) == CUDA_SUCCESS;
}

}  // namespace

std::uint32_t graph_spacing() { return spacing().every; }

void prepare_capture(CUstream handle, bool per_thread) {
  if (graph_spacing() == 0) return;
  const StreamState* stream = find_stream(handle, per_thread);
  Session* session = stream != nullptr ? stream->session.load() : nullptr;
  if (session == nullptr || session->ungated.load() || any_capture()) return;
  if (!spacing().is_given && session->is_high) return;
  RelaxedCapture relaxed;
  if (register_memory(session)) try_driver(session);
}

void capture_began(StreamState* stream, bool into_graph) {
  const cuuint64_t id = capture_id(*stream);
  const Session* session = stream->session;
  if (id == 0 || session == nullptr || session->ungated.load()) return;
  std::uint32_t whole = 0;
  if (graph_spacing() == 0) {
    whole = because(Whole::kOff);
  } else if (!spacing().is_given && session->is_high) {
    whole = because(Whole::kPriority);
  } else if (into_graph) {
    whole = because(Whole::kIntoGraph);
  } else if (session->gate_address.load() == 0 || session->registered_in.load() != stream->context.load() ||
             driver_takes_gates.load() != 1) {
    whole = because(Whole::kRefused);
  }
  Capturing& entry = entry_of(capturing, id);
  entry.whole.store(whole);
  entry.gates.store(0);
  entry.context.store(stream->context.load());
  entry.skipped.store(false);
  entry.id.store(id);
}

CaptureEnd::CaptureEnd(StreamState* stream) : stream_(stream) {
  if (stream != nullptr) id_ = capture_id(*stream);
}

void CaptureEnd::done(CUgraph graph) const {
  Capturing* entry = id_ != 0 ? capture_of(id_) : nullptr;
  if (entry == nullptr || graph == nullptr) return;
  Captured& known = entry_of(captured, reinterpret_cast<std::uintptr_t>(graph));
  const bool none_fitted = entry->skipped.load() && entry->whole.load() == 0 && entry->gates.load() == 0;
  known.whole.store(none_fitted ? because(Whole::kRefused) : entry->whole.load());
  known.gates.store(entry->gates.load());
  known.graph.store(graph);
  const Session* session = stream_->session;
  if (entry->gates.load() != 0 && session != nullptr)
    session->self->counters.graphs_gated.fetch_add(1, std::memory_order_relaxed);
  entry->id.store(0);
}

void CapturedSubmission::begin(StreamState* stream, cuda_abi::Kind kind, bool overlaps) {
  using cuda_abi::Kind;
  if (kind == Kind::kHost || kind == Kind::kOther) return;
  const cuuint64_t id = capture_id(*stream);
  Capturing* entry = id != 0 ? capture_of(id) : nullptr;
  if (entry == nullptr || entry->whole.load() != 0) return;
  if (stream->context.load() != entry->context.load()) return;  // the gate word may not outlive the graph there
  const Session* session = stream->session;
  if (stream->captured_by.exchange(id) != id) stream->captured_since.store(0);
  since_ = stream->captured_since.fetch_add(1);
  stream_ = stream;
  // A copy or memset of no bytes leaves no node: behind a gate that nothing follows, a branch would not be joined.
  if (kind != Kind::kKernel || since_ < graph_spacing()) return;
  CUstreamCaptureStatus status;
  CUgraph graph = nullptr;
  const CUgraphNode* tips = nullptr;
  // It refuses where edges have data of their own: not a place for a gate.
  if (overlaps ||
      real.stream_get_capture_info_v2(stream->handle, &status, nullptr, &graph, &tips, &tip_count_) != CUDA_SUCCESS ||
      tip_count_ > kTips) {
    entry->skipped.store(true);
    return;
  }
  for (std::size_t i = 0; i < tip_count_; ++i) tips_[i] = tips[i];
  if (enqueue_wait(session, stream->handle, session->word_address.load()) != CUDA_SUCCESS) {
    entry->whole.store(because(Whole::kRefused));
    return;
  }
  placed_ = true;
  entry->gates.fetch_add(1);
  session->self->counters.gates.fetch_add(1, std::memory_order_relaxed);
  stream->captured_since.store(1);
}

void CapturedSubmission::done(CUresult result) {
  if (stream_ == nullptr || result == CUDA_SUCCESS) return;
  stream_->captured_since.store(since_);
  // The gate itself stays in the graph, at the end of nothing: a capture gives up no node.
  if (placed_)
    real.stream_update_capture_dependencies(stream_->handle, tips_, tip_count_, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

GraphFacts facts_of(CUgraphExec exec) {
  const std::uintptr_t key = reinterpret_cast<std::uintptr_t>(exec);
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    const Made& entry = made[((key * 0x9e3779b97f4a7c15ull >> 32) + probe) % kGraphs];
    if (entry.exec.load(std::memory_order_acquire) != exec) continue;
    const std::uint32_t whole = entry.whole.load();
    return {true, entry.gates.load(), entry.kernels.load(), whole != 0, static_cast<Whole>(whole != 0 ? whole - 1 : 0)};
  }
  return {};
}

std::uint32_t kernels_of(CUgraph graph) {
  Counted counted;
  if (real.graphs) count(graph, &counted);
  return counted.kernels;
}

void graph_made(CUgraphExec exec, CUgraph graph, unsigned long long flags) {
  if (!real.graphs) return;
  Counted counted;
  count(graph, &counted);
  std::uint32_t whole = 0;
  const std::uint32_t least = graph_spacing() != 0 ? graph_spacing() : kGraphSpacing;
  if (counted.gates == 0 && counted.kernels > least) {
    const Captured& known = entry_of(captured, reinterpret_cast<std::uintptr_t>(graph));
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
      whole = because(Whole::kFromDevice);
    } else if (known.graph.load() != graph) {
      whole = because(Whole::kByHand);
    } else {
      // Of many branches each may be short; or what it had was taken out.
      whole = known.gates.load() != 0 ? because(Whole::kRefused) : known.whole.load();
    }
  }
  graph_gone(exec);
  Guard guard(made_lock);
  const std::uintptr_t key = reinterpret_cast<std::uintptr_t>(exec);
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    Made& entry = made[((key * 0x9e3779b97f4a7c15ull >> 32) + probe) % kGraphs];
    if (entry.exec.load() != nullptr) continue;
    entry.gates.store(counted.gates);
    entry.kernels.store(counted.kernels);
    entry.whole.store(whole);
    entry.exec.store(exec, std::memory_order_release);
    return;
  }
}

void graph_gone(CUgraphExec exec) {
  Guard guard(made_lock);
  const std::uintptr_t key = reinterpret_cast<std::uintptr_t>(exec);
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    Made& entry = made[((key * 0x9e3779b97f4a7c15ull >> 32) + probe) % kGraphs];
    if (entry.exec.load() == exec) entry.exec.store(nullptr);
  }
}

bool strip(CUgraph graph) {
  if (!real.graphs || session_at(0) == nullptr) return false;
  bool any = false;
  for (CUgraphNode node : Nodes(graph)) {
    CUgraph child = nullptr;
    if (type_of(node) == CU_GRAPH_NODE_TYPE_GRAPH && real.graph_child_get_graph(node, &child) == CUDA_SUCCESS) {
      any |= strip(child);
    } else if (is_gate(node)) {
      any |= remove_gate(graph, node);
    }
  }
  return any;
}

}  // namespace sluice::shim
