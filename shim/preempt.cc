#include "preempt.h"

#include <cstdlib>

#include "channel_groups.h"
#include "say.h"
#include "session.h"

namespace sluice::shim {
namespace {

// What a job above waits at most for this one's kernel, before the switch itself.
constexpr std::uint64_t kSliceUs = 50;
// Pieces of work between two gates for which it pays: shorter ones end by themselves sooner than the switches in their
// midst would cost, and than the calls that take them off the GPU (0.6 ms) and put them on it (0.3). Measured:
// docs/results.md.
constexpr std::uint64_t kLongNs = 400'000, kShortNs = kLongNs / 2;
// Both also bound how late a change is seen that nobody tells of.
constexpr std::uint64_t kOffTickNs = 10'000'000, kTickNs = 100'000'000;

std::uint64_t slice_us = kSliceUs;
bool able = false;

void* preemption(void*) {
  bool is_long = false;
  while (enabled()) {
    bool is_below = false;
    for (int i = 0; const Session* session = session_at(i); ++i) {
      // Under MPS the channels are its server's, and what cannot have gates is promised to be left alone.
      const bool is_gated = !session->ungated.load() && session->board->jobs[session->job].mps.load() == 0;
      is_below |= is_gated && board::is_below(session->board, session->client, now_ns());
    }
    board::Client& self = *session_at(0)->self;
    is_long = self.tail_ns.load() > (is_long ? kShortNs : kLongNs);
    channel_groups::set_time_slice(is_below && is_long ? slice_us : 0);

    // The kernel module's handles do not say which CUDA device is theirs: a process with several only gets the slices.
    bool one_device = false;
    const bool can_go =
        is_below && is_long && session_at(1) == nullptr && channel_groups::count(&one_device) > 0 && one_device;
    self.watched.store(can_go ? 1 : 0);
    const std::uint32_t changes = self.changes.load();
    const bool go = can_go && (self.gate.load() & board::kCloserBits) != 0;
    if (go && channel_groups::take_off() > 0) self.counters.preempted.fetch_add(1, std::memory_order_relaxed);
    if (!go) channel_groups::put_on();
    board::await_change(self, changes, go ? kOffTickNs : kTickNs);
  }
  channel_groups::put_on();  // where the end of the process did not wait for what this thread was at
  return nullptr;
}

}  // namespace

void prepare_preemption(void* driver) {
  constexpr std::uint64_t kMostUs = 1'000'000;
  if (const char* text = std::getenv("SLUICE_TIME_SLICE")) {
    char* end = nullptr;
    slice_us = std::strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || slice_us > kMostUs) {
      static std::atomic<bool> said{false};
      slice_us = kSliceUs;
      say_once(&said, "SLUICE_TIME_SLICE is '%s'; it takes microseconds, from 0 to %llu; %llu is used", text,
               static_cast<unsigned long long>(kMostUs), static_cast<unsigned long long>(kSliceUs));
    }
  }
  able = slice_us != 0 && channel_groups::follow(driver);
}

void start_preemption() {
  if (able) start_thread(preemption);
}

void end_preemption() {
  if (able) channel_groups::close();
}

}  // namespace sluice::shim
