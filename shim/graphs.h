// Gates inside captured graphs, and what is known of the graphs that a program launches.
//
// While a stream of this job is captured, every graph_spacing() submissions the same wait that a stream's gate is goes
// into the capture, before a kernel, and becomes a node. Where that is decided only what the program does counts, never
// what the board says at that moment: the same work captured twice gives the same nodes, or the second could not update
// what the first was made into. A capture gets no gates at all, and its graph is launched whole, where
//   * SLUICE_GRAPH_SPACING is 0, or not set and the job had kHighPriority when the process came to the board;
//   * it goes into a graph that the program made before, which may be the body of a condition: these take no waits;
//   * this driver, asked once by a capture of ours, or this context cannot have them.
// Gates are taken out again where the program then needs a graph without (see strip).
//
// The gate word that they wait for stays mapped and registered as long as the context in which it was registered; only
// captures of that context have gates. Thread safe; nothing here allocates but for lists of nodes, which are mapped.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sluice/board.h"
#include "sluice/cuda_abi.h"

namespace sluice::shim {

struct Session;
struct StreamState;

// Submissions between two gates of a captured stream; 0: none. SLUICE_GRAPH_SPACING, else kGraphSpacing.
std::uint32_t graph_spacing();
inline constexpr std::uint32_t kGraphSpacing = 16;  // docs/adr/0013 has what 4, 8 and 16 cost

// ---- capture

// Before a stream of the program's begins to capture: registers what the gates wait for, which would break the capture
// later on.
void prepare_capture(CUstream handle, bool per_thread);
// It has begun.
void capture_began(StreamState* stream, bool into_graph);
// Around cuStreamEndCapture.
class CaptureEnd {
 public:
  explicit CaptureEnd(StreamState* stream);
  void done(CUgraph graph) const;  // it made that

 private:
  StreamState* stream_;
  cuuint64_t id_ = 0;
};

// One submission into a capture, around the driver's own call.
class CapturedSubmission {
 public:
  // Puts a gate in front if one is due; in front of a kernel that `overlaps` with the one before, none comes between.
  void begin(StreamState* stream, cuda_abi::Kind kind, bool overlaps);
  // If the program's call failed, its stream goes on as if there had been no gate.
  void done(CUresult result);

 private:
  static constexpr std::size_t kTips = 32;  // of a stream that joins more branches, no gate comes behind them
  StreamState* stream_ = nullptr;
  std::uint32_t since_ = 0;
  std::size_t tip_count_ = 0;
  CUgraphNode tips_[kTips];
  bool placed_ = false;
};

// ---- graphs

// What is known of an executable graph, by the nodes that it was made of.
struct GraphFacts {
  bool is_known = false;
  std::uint32_t gates = 0;    // inside
  std::uint32_t kernels = 0;  // as kernels_of counts them
  bool is_whole = false;      // longer than the spacing, and without gates
  board::Whole reason = board::Whole::kByHand;
};
GraphFacts facts_of(CUgraphExec exec);
// Child graphs included; the body of a condition counts for more than the spacing.
std::uint32_t kernels_of(CUgraph graph);
void graph_made(CUgraphExec exec, CUgraph graph, unsigned long long flags);
void graph_gone(CUgraphExec exec);

// Takes this job's gates out of a graph, child graphs included, and ties what was before them to what was behind. The
// nodes of the program's stay what they are. Returns whether there were any.
bool strip(CUgraph graph);

}  // namespace sluice::shim
