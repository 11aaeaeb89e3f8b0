// What a piece of work costs the GPU, learnt by timing a sample of the launches with a pair of events.
//
// A key is a kernel with its number of blocks, a graph, or a copy of a size class. Until the first sample a key
// counts as kUnknownNs, so that an unknown job is gated every eighth launch of a quantum of 100 us.
// Thread safe: the table is lock-free; samples have a short lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "sluice/cuda_abi.h"

namespace sluice::shim {

struct Session;
struct StreamState;

using cuda_abi::Kind;

// What one submission is, before it is priced.
struct Work {
  Kind kind = Kind::kOther;
  const void* handle = nullptr;  // CUfunction, CUkernel or CUgraphExec
  std::uint64_t size = 0;        // blocks of a kernel, bytes of a copy or memset
};

inline constexpr std::uint32_t kUnknownNs = 12'500;
inline constexpr int kNameBytes = 112;

struct Cost {
  std::atomic<std::uint64_t> key;       // 0: free
  std::atomic<std::uint32_t> estimate;  // ns; kUnknownNs until sampled
  std::atomic<std::uint32_t> samples;
  std::atomic<std::uint64_t> launches;
  std::atomic<std::uint32_t> slot;  // 1 + index in the board's long_kernels; 0 while it is not a long one
};

// The entry of that work. Never null: when the table is full, a shared entry that is never sampled.
Cost* find_cost(const Work& work);

// Whether this launch, the n-th of its key (from 0), is worth a pair of events: the second to fourth, then one in 64.
// The first is left out because it may pay for lazy loading.
inline bool wants_sample(std::uint64_t n) { return (n >= 1 && n <= 3) || (n & 63) == 63; }

// Starts timing on a stream of the current context; null if no pair of events is free. end_sample closes it.
// `has_gates`: the work can be held midway, and a sample of that says nothing.
// REQUIRES: the stream is not capturing.
struct Sample;
Sample* begin_sample(Session* session, StreamState* stream, Cost* cost, bool has_gates);
void end_sample(Sample* sample, StreamState* stream);

// Reads the samples that are done and updates their costs. Called by the marker thread, which may block in the driver.
void collect_samples();
// Forgets the samples of a context that is about to be destroyed; null: of every context.
void drop_samples(CUcontext context);

}  // namespace sluice::shim
