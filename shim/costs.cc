#include "costs.h"

#include <bit>
#include <cstring>

#include "lock.h"
#include "real.h"
#include "session.h"

namespace sluice::shim {

struct Sample {
  enum State : std::uint32_t { kEmpty, kIdle, kOpen, kPending };
  std::atomic<std::uint32_t> state;
  CUcontext context;
  CUevent start;
  CUevent stop;
  Cost* cost;
  Session* session;
  bool has_gates;       // inside of what it times
  std::uint64_t holds;  // of this process's when it began
  std::uint64_t preempted;
};

namespace {

constexpr int kCosts = 8192;
constexpr int kSamples = 64;
constexpr int kProbes = 32;

Cost costs[kCosts];
Cost overflow;
Sample samples[kSamples];
Mutex samples_lock;

std::uint64_t key_of(const Work& work) {
  // Copies and memsets differ by size only, and a power of two is near enough; graphs and kernels by identity.
  const bool by_size = work.kind == Kind::kCopy || work.kind == Kind::kMemset || work.handle == nullptr;
  const std::uint64_t size = by_size ? static_cast<std::uint64_t>(std::bit_width(work.size)) : work.size;
  std::uint64_t hash = reinterpret_cast<std::uint64_t>(work.handle) * 0x9e3779b97f4a7c15ull;
  hash ^= (size + 1) * 0xff51afd7ed558ccdull;
  hash ^= (static_cast<std::uint64_t>(work.kind) + 1) * 0xc4ceb9fe1a85ec53ull;
  hash ^= hash >> 29;
  return hash == 0 ? 1 : hash;
}

Cost* overflow_cost() {
  overflow.estimate.store(kUnknownNs, std::memory_order_relaxed);
  return &overflow;
}

}  // namespace

Cost* find_cost(const Work& work) {
  const std::uint64_t key = key_of(work);
  for (int probe = 0; probe < kProbes; ++probe) {
    Cost& cost = costs[(key + static_cast<std::uint64_t>(probe)) % kCosts];
    std::uint64_t seen = cost.key.load(std::memory_order_acquire);
    if (seen == key) return &cost;
    if (seen != 0) continue;
    cost.estimate.store(kUnknownNs, std::memory_order_relaxed);  // the same value from every racer
    if (cost.key.compare_exchange_strong(seen, key, std::memory_order_acq_rel) || seen == key) return &cost;
  }
  return overflow_cost();
}

Sample* begin_sample(Session* session, StreamState* stream, Cost* cost, bool has_gates) {
  if (cost == &overflow || real.event_create == nullptr || real.event_elapsed == nullptr) return nullptr;
  Sample* found = nullptr;
  {
    if (!samples_lock.try_lock()) return nullptr;
    for (Sample& sample : samples) {
      const std::uint32_t state = sample.state.load(std::memory_order_acquire);  // whoever emptied it has read it
      if (state == Sample::kIdle && sample.context == stream->context) {
        found = &sample;
        break;
      }
      if (state == Sample::kEmpty && found == nullptr) found = &sample;
    }
    if (found != nullptr && found->state.load(std::memory_order_relaxed) == Sample::kEmpty) {
      if (real.event_create(&found->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
          real.event_create(&found->stop, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        found = nullptr;
      } else {
        found->context = stream->context;
      }
    }
    if (found != nullptr) found->state.store(Sample::kOpen, std::memory_order_relaxed);
    samples_lock.unlock();
  }
  if (found == nullptr) return nullptr;
  found->cost = cost;
  found->session = session;
  found->has_gates = has_gates;
  found->holds = session->self->counters.holds.load();
  found->preempted = session->self->counters.preempted.load();
  if (real.event_record(found->start, stream->handle) != CUDA_SUCCESS) {
    found->state.store(Sample::kIdle, std::memory_order_release);
    return nullptr;
  }
  return found;
}

void end_sample(Sample* sample, StreamState* stream) {
  const bool good = real.event_record(sample->stop, stream->handle) == CUDA_SUCCESS;
  sample->state.store(good ? Sample::kPending : Sample::kIdle, std::memory_order_release);
}

namespace {

// Whether it may have stood at a gate inside: then it tells how long others had the GPU.
bool was_held(const Sample& sample) {
  const board::Client& self = *sample.session->self;
  return sample.has_gates && (self.gate.load() != 0 || self.counters.holds.load() != sample.holds);
}

// Whether the process may have been off the GPU in its midst. That does not make it worthless: it is too long at worst.
bool was_off(const Sample& sample) { return sample.session->self->counters.preempted.load() != sample.preempted; }

}  // namespace

void collect_samples() {
  for (Sample& sample : samples) {
    if (sample.state.load(std::memory_order_acquire) != Sample::kPending) continue;
    if (real.ctx_set_current != nullptr) real.ctx_set_current(sample.context);
    float ms = 0;
    const CUresult result = real.event_elapsed(&ms, sample.start, sample.stop);
    if (result == CUDA_ERROR_NOT_READY) continue;
    Cost& cost = *sample.cost;
    if (result == CUDA_SUCCESS && ms >= 0 && ms < 4000 && !was_held(sample)) {
      const std::uint32_t ns = static_cast<std::uint32_t>(static_cast<double>(ms) * 1e6);
      const std::uint32_t old = cost.estimate.load(std::memory_order_relaxed);
      if (cost.samples.fetch_add(1, std::memory_order_relaxed) == 0) {
        cost.estimate.store(ns, std::memory_order_relaxed);
        // The launches so far were booked at the guess; correct them.
        const std::int64_t error = static_cast<std::int64_t>(ns) - static_cast<std::int64_t>(old);
        const std::int64_t launches = static_cast<std::int64_t>(cost.launches.load(std::memory_order_relaxed));
        sample.session->self->counters.gpu_ns.fetch_add(static_cast<std::uint64_t>(error * launches),
                                                        std::memory_order_relaxed);
      } else if (ns < old || !was_off(sample)) {
        // A sample can only be too long (a time slice or a late launch in between), so shorter ones count at once.
        cost.estimate.store(ns < old ? ns : old + (ns - old) / 8, std::memory_order_relaxed);
      }
    }
    sample.state.store(Sample::kIdle, std::memory_order_release);
  }
}

void drop_samples(CUcontext context) {
  Guard guard(samples_lock);
  for (Sample& sample : samples) {
    const std::uint32_t state = sample.state.load(std::memory_order_acquire);
    if (state == Sample::kEmpty || state == Sample::kOpen || (context != nullptr && sample.context != context))
      continue;
    sample.state.store(Sample::kEmpty, std::memory_order_release);  // its events go with the context
  }
}

}  // namespace sluice::shim
