// Wrappers of everything that gives the GPU work, generated from the table. Each submits in the caller's thread, in the
// caller's order, with the caller's arguments; what is added comes before or after it on the same stream.
#include <cuda.h>

#include <cstring>

#include "graphs.h"
#include "held_wait.h"
#include "hooks.h"
#include "memory.h"
#include "real.h"
#include "session.h"
#include "sluice/cuda_abi.h"
#include "takeover.h"

namespace sluice::shim {
namespace {

// Books a launch of a kernel that runs longer than the quantum under its name, for the report at the job's end.
void count_long(Session* session, Cost* cost, const Work& work, std::uint32_t estimate) {
  board::Client& self = *session->self;
  self.counters.long_launches.fetch_add(1, std::memory_order_relaxed);
  std::uint32_t slot = cost->slot.load(std::memory_order_acquire);
  if (slot == 0) {
    static Mutex lock;
    Guard guard(lock);
    char name[kNameBytes] = "CUDA graph";
    const char* known = nullptr;
    void* handle = const_cast<void*>(work.handle);
    if (work.kind == Kind::kKernel) {
      if ((real.func_get_name == nullptr ||
           real.func_get_name(&known, static_cast<CUfunction>(handle)) != CUDA_SUCCESS) &&
          (real.kernel_get_name == nullptr ||
           real.kernel_get_name(&known, static_cast<CUkernel>(handle)) != CUDA_SUCCESS)) {
        known = nullptr;
      }
      std::strncpy(name, known != nullptr ? known : "(name unknown: the driver is older than 545)", sizeof name - 1);
      name[sizeof name - 1] = '\0';
    }
    for (int i = 0; i < board::kLongKernels && slot == 0; ++i) {
      board::LongKernel& kernel = self.long_kernels[i];
      if (kernel.name[0] == '\0') std::memcpy(kernel.name, name, sizeof name);
      if (std::strcmp(kernel.name, name) == 0) slot = static_cast<std::uint32_t>(i) + 1;
    }
    if (slot == 0) slot = board::kLongKernels + 1;  // no room for its name: only counted
    cost->slot.store(slot, std::memory_order_release);
  }
  if (slot > board::kLongKernels) return;
  board::LongKernel& kernel = self.long_kernels[slot - 1];
  kernel.launches.fetch_add(1, std::memory_order_relaxed);
  if (estimate > kernel.longest_ns.load(std::memory_order_relaxed))
    kernel.longest_ns.store(estimate, std::memory_order_relaxed);
}

// One submission, around the driver's own call.
class Submission {
 public:
  // `waits`: the call returns only when its work, and hence all before it, is done.
  // `overlaps`: it may start before what comes before it has ended.
  Submission(CUstream handle, bool per_thread, const Work& work, bool waits, bool overlaps) : waits_(waits) {
    StreamState* stream = find_stream(handle, per_thread);
    if (stream == nullptr || stream->session == nullptr) return;
    Session* session = stream->session;
    board::Counters& counters = session->self->counters;
    if (work.kind == Kind::kGraph) graph_launched();
    const bool runs_on_gpu = work.kind != Kind::kHost && work.kind != Kind::kOther;
    if (is_capturing(*stream)) {
      counters.launches.fetch_add(1, std::memory_order_relaxed);
      counters.captured.fetch_add(1, std::memory_order_relaxed);
      captured_.begin(stream, work.kind, overlaps);
      return;
    }
    stream_ = stream;
    if (submitting(stream)) take_over(*stream, work.kind);
    submission_ = stream->submitted.load();
    if (!runs_on_gpu) return;
    counters.launches.fetch_add(1, std::memory_order_relaxed);
    Cost* cost = find_cost(work);
    const std::uint64_t n = cost->launches.fetch_add(1, std::memory_order_relaxed);
    estimate_ = cost->estimate.load(std::memory_order_relaxed);
    counters.gpu_ns.fetch_add(estimate_, std::memory_order_relaxed);
    // Of a graph with gates inside it is the piece between two of them that cannot be held.
    std::uint32_t piece = estimate_;
    GraphFacts facts;
    if (work.kind == Kind::kGraph) {
      facts = facts_of(static_cast<CUgraphExec>(const_cast<void*>(work.handle)));
      piece /= facts.gates + 1;
      if (facts.is_whole && !session->ungated.load(std::memory_order_relaxed)) {
        counters.graphs_whole[static_cast<int>(facts.reason)].fetch_add(1, std::memory_order_relaxed);
      }
    }
    // A single sample may have been cut by a time slice.
    if (piece > session->quantum_ns.load(std::memory_order_relaxed) &&
        cost->samples.load(std::memory_order_relaxed) > 2 &&
        (work.kind == Kind::kKernel || work.kind == Kind::kGraph)) {
      count_long(session, cost, work, piece);
    }
    const bool gated = gate(stream, piece);
    if (facts.gates != 0) gated_inside(stream, piece);
    if (gated) counters.gated.fetch_add(1, std::memory_order_relaxed);
    if (waits) await_stream(stream);
    if (wants_sample(n)) sample_ = begin_sample(session, stream, cost, facts.gates != 0);
  }

  // After the driver's call.
  void done(CUresult result) {
    captured_.done(result);
    if (stream_ == nullptr) return;
    if (sample_ != nullptr) end_sample(sample_, stream_);
    if (waits_ && result == CUDA_SUCCESS) {
      completed(stream_, submission_);
      return;
    }
    mark_progress(stream_, estimate_);
  }

 private:
  const bool waits_;
  StreamState* stream_ = nullptr;
  Sample* sample_ = nullptr;
  std::uint64_t submission_ = 0;
  std::uint32_t estimate_ = 0;
  CapturedSubmission captured_;
};

// Copies to the host without "Async" in their name return when the data is there.
constexpr bool waits_for_result(const char* name) {
  bool to_host = false;
  for (const char* at = name; *at != '\0'; ++at) {
    if (at[0] == 't' && at[1] == 'o' && at[2] == 'H') to_host = true;
    if (at[0] == 'A' && at[1] == 's' && at[2] == 'y') return false;
  }
  return to_host;
}

#define SLUICE_DEFAULT_STREAM(flags) static_cast<CUstream>(nullptr)
#define SLUICE_KERNEL(function, blocks) \
  { reinterpret_cast<const void*>(function), (blocks), false }
#define SLUICE_KERNEL_EX(function, blocks, config) \
  { reinterpret_cast<const void*>(function), (blocks), cuda_abi::overlaps(config) }
#define SLUICE_GRAPH(graph) \
  { reinterpret_cast<const void*>(graph), 0, false }
#define SLUICE_BYTES(bytes) \
  { nullptr, (bytes), false }

struct Amount {
  const void* handle;
  std::uint64_t size;
  bool overlaps;  // with what comes before it
};

#define SLUICE_SUBMIT(symbol, name, version, flags, kind, stream, work, params, args)                \
  std::atomic<void*> real_##symbol;                                                                  \
  CUresult CUDAAPI hook_##symbol params {                                                            \
    using Function = CUresult(CUDAAPI*) params;                                                      \
    const Function next = reinterpret_cast<Function>(real_##symbol.load(std::memory_order_relaxed)); \
    if (!enabled()) return next args;                                                                \
    const Amount amount = work;                                                                      \
    Submission submission(stream, (flags) == 2, Work{Kind::k##kind, amount.handle, amount.size},     \
                          waits_for_result(#name), amount.overlaps);                                 \
    const CUresult result = next args;                                                               \
    submission.done(result);                                                                         \
    return result;                                                                                   \
  }
#include "sluice/cuda_abi/submits.inc"
#undef SLUICE_SUBMIT

#define SLUICE_SUBMIT(symbol, name, version, flags, kind, stream, work, params, args) \
  {#symbol, reinterpret_cast<void*>(&hook_##symbol), &real_##symbol},
const Hook kHooks[] = {
#include "sluice/cuda_abi/submits.inc"
};
#undef SLUICE_SUBMIT

#define SLUICE_SUBMIT(symbol, name, version, flags, kind, stream, work, params, args) #symbol,
const char* const kSymbols[] = {
#include "sluice/cuda_abi/submits.inc"
    nullptr};
#undef SLUICE_SUBMIT

}  // namespace

std::span<const Hook> submit_hooks() { return kHooks; }

}  // namespace sluice::shim

// For the tool that lists what submits work and is not gated: names, null-terminated, static.
extern "C" [[gnu::visibility("default")]] const char* const* sluice_shim_gated_symbols() {
  return sluice::shim::kSymbols;
}
