// The emulated machine: what its processes share. One file per profile and user in the runtime directory.
//
// It holds, for each card, the contexts (slots), who has the SMs, when the copy engines are free, and the memory in
// use; and the events that processes exchange. All of it is plain memory and atomics, all-zero is its valid initial
// state, and every claim carries its owner's ProcessIdentity: a process may be killed anywhere without blocking or
// leaking anything for the others.
//
// Who has the SMs is a deterministic function of when contexts began to want them, computed lazily by whoever looks
// first: a hand-over gets the time at which the hardware would have done it, not that of the look. So a late wake-up
// of a thread delays what a program sees, but does not distort the shares.
#pragma once

#include <atomic>
#include <cstdint>

#include "profile.h"
#include "sluice/base/process.h"

namespace sluice::emulator {

inline constexpr int kSlots = 128;       // contexts, a card; a slot's index plus 1 fits the engine word's 8 bits
inline constexpr int kIpcEvents = 1024;  // interprocess events, a machine
inline constexpr int kBusyBuckets = 16;
inline constexpr std::uint64_t kBusyBucketNs = 64'000'000;

enum class Direction { kHtoD = 0, kDtoH = 1, kDtoD = 2 };

// One context on a card. Written by its owner unless said otherwise.
struct alignas(128) Slot {
  std::atomic<ProcessIdentity> owner;
  std::atomic<std::uint64_t> bytes;     // device memory it has allocated
  std::atomic<std::uint32_t> kick;      // futex: grows when its executor has something to look at; by anybody
  std::atomic<std::uint32_t> sleeping;  // its executor waits on `kick`
  std::atomic<std::uint64_t> beat_ns;   // when its executor last looked; a stopped or dead one goes stale
  std::atomic<std::uint64_t> wants_ns;  // since when it has runnable work and not the SMs; 0: it wants nothing
  std::atomic<std::uint64_t> lost_ns;   // when the SMs were last taken from it; by who took them, before taking
};

struct alignas(128) Device {
  // Since when (ns, 55 bits) | idle (1 bit) | slot + 1 (8 bits). Idle: the slot is that of the last one who had it.
  std::atomic<std::uint64_t> engine;
  std::atomic<std::uint64_t> copy_free_ns[3];       // by Direction: when that copy engine has done what was reserved
  std::atomic<std::uint64_t> wanting[kSlots / 64];  // bit i: slots[i].wants_ns may be other than 0
  struct Bucket {
    std::atomic<std::uint64_t> epoch;
    std::atomic<std::uint64_t> busy_ns;
  } busy[kBusyBuckets];
  Slot slots[kSlots];
};

// An event that can be waited for in other processes.
struct alignas(64) IpcEvent {
  std::atomic<ProcessIdentity> owner;     // its creator; the record goes when it is gone
  std::atomic<std::uint32_t> generation;  // of the record: a stale handle is recognised by it
  std::atomic<std::uint64_t> recorded;    // number of the latest record
  std::atomic<std::uint64_t> done;        // number of the latest one that completed
  std::atomic<std::uint64_t> done_ns;
  std::atomic<ProcessIdentity> recorder;  // who made the latest record: dead, it will not complete
};

struct Machine {
  Device devices[kMaxDevices];
  IpcEvent events[kIpcEvents];
};

// Maps the machine that `settings` describes, once a process. Where the runtime directory cannot be used (missing,
// full, not ours), a private machine takes its place, and this is said once. Never null.
Machine* machine(const Settings& settings);

// ---- slots and memory -----------------------------------------------------------------------------------------

// Returns the index of a slot of `device` that now belongs to this process, or -1 when all are taken by live ones.
int claim_slot(Device& device);
void release_slot(Device& device, int slot);
// Frees slots whose process is gone.
void reap_slots(Device& device);
// Adds `bytes` to the slot if the card has room for them next to everybody's. Returns false if not.
bool charge(Device& device, int slot, std::uint64_t bytes, std::uint64_t card_bytes);
void uncharge(Device& device, int slot, std::uint64_t bytes);
std::uint64_t used_bytes(Device& device);

// Wakes the slot's executor to look again. Callable from any process.
void kick(Slot& slot);
// Waits until kick changes from `seen` or it is `until_ns`.
void wait_for_kick(Slot& slot, std::uint32_t seen, std::uint64_t until_ns);

// ---- copy engines and load ------------------------------------------------------------------------------------

// Reserves the copy engine for `cost_ns` from `ready_ns` at the earliest. Returns when the copy ends.
std::uint64_t reserve_copy(Device& device, Direction direction, std::uint64_t ready_ns, std::uint64_t cost_ns);
// Adds a stretch of SM time that ended at `end_ns`.
void add_busy(Device& device, std::uint64_t end_ns, std::uint64_t cost_ns);
// Busy SM time of the last second as a percentage.
unsigned busy_percent(const Device& device, std::uint64_t now);

// ---- the SMs --------------------------------------------------------------------------------------------------

// One context's dealings with its card's SMs. Belongs to the context's executor thread.
//
// Rules, as measured: who has the SMs keeps them until it has no runnable work, or until its slice, counted from
// when it got them, has expired and another wants them; a context that begins to want them after that gets them at
// once, in the middle of a kernel. Waiting contexts take turns in the order of their slots.
class Engine {
 public:
  Engine(Device& device, int slot, std::uint64_t slice_ns, std::uint64_t switch_ns)
      : device_(device), slot_(slot), slice_ns_(slice_ns), switch_ns_(switch_ns) {}

  // Asks for the SMs for work that could run from `since`. True: it has them; work may start at ready_ns().
  bool acquire(std::uint64_t since, std::uint64_t now);
  std::uint64_t ready_ns() const { return ready_ns_; }
  // After acquire() said no: when the present holder's slice ends.
  std::uint64_t next_look_ns() const { return next_look_ns_; }

  // Whether it had the SMs all through until `end`, not after now. If not: since `*lost` it does not, and wants them.
  bool kept_until(std::uint64_t end, std::uint64_t* lost);

  // It has had no runnable work since `at`.
  void release(std::uint64_t at);
  bool held() const { return held_; }
  bool wanting() const { return wanting_; }
  // Whether it has them, wants them, or others believe so (who were late to see a release): then release() is due.
  bool involved() const;

 private:
  struct Next {
    int slot = -1;
    std::uint64_t at = 0;
  };
  // Who gets the SMs when they become free for others at `at`, and when. `except` is not asked.
  Next pick(int except, std::uint64_t at, std::uint64_t now);
  void set_wants(int slot, std::uint64_t since);
  void clear_wants(int slot);
  bool give(std::uint64_t word, const Next& next);  // compare-and-swap of the engine word

  Device& device_;
  const int slot_;
  const std::uint64_t slice_ns_, switch_ns_;
  bool held_ = false, wanting_ = false;
  std::uint64_t word_ = 0;  // the engine word by which it has the SMs
  std::uint64_t ready_ns_ = 0, next_look_ns_ = 0;
};

// ---- interprocess events --------------------------------------------------------------------------------------

// Index of a fresh record, or -1 when all are in use by live processes.
int claim_ipc_event(Machine& machine);
void release_ipc_event(IpcEvent& event);

}  // namespace sluice::emulator
