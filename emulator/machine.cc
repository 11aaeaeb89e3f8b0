#include "machine.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sluice/base/clock.h"
#include "sluice/base/sharing.h"

namespace sluice::emulator {
namespace {

// An executor that has not looked for so long is asked about: is its process dead (or, after much longer, stopped)?
constexpr std::uint64_t kStaleNs = 20'000'000;
constexpr std::uint64_t kStoppedNs = 250'000'000;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

// The directory the boards are in too; `sharing` is filled in if it is a group's. Returns -1 with errno set.
int open_runtime_directory(std::string* path, Sharing* sharing) {
  const char* configured = std::getenv("SLUICE_RUNTIME_DIR");
  *path = configured != nullptr && *configured != '\0' ? configured : "/dev/shm/sluice-" + std::to_string(geteuid());
  if (mkdir(path->c_str(), 0700) != 0 && errno != EEXIST) return -1;
  int fd = open(path->c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat st;
  const bool seen = fstat(fd, &st) == 0;
  const bool ours = seen && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
  if (!ours && !(seen && sharing_of(path->c_str(), sharing).ok() && sharing->by_group)) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

void* map_shared(const Settings& settings, std::string* what) {
  Sharing sharing;
  int directory = open_runtime_directory(what, &sharing);
  if (directory < 0) return MAP_FAILED;
  // The layout's version is in the name: another one is another machine.
  const std::string name = "emulator-" + settings.profile_key + ".v1";
  *what += "/" + name;
  int fd = openat(directory, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  int error = errno;
  close(directory);
  errno = error;
  if (fd < 0) return MAP_FAILED;
  // Who did not make it may not change its mode, and need not.
  if (sharing.by_group) static_cast<void>(share_file(fd, sharing, what->c_str()));
  void* at = MAP_FAILED;
  rlimit limit;
  // Reserved in full, so that a full /dev/shm is an error here and not a SIGBUS later. Beyond the limit of a file's
  // size, though, the kernel would end the process by a signal.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(Machine)) {
    errno = EFBIG;
  } else if (int full = posix_fallocate(fd, 0, sizeof(Machine)); full != 0) {
    errno = full;
  } else {
    at = mmap(nullptr, sizeof(Machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  error = errno;
  close(fd);
  errno = error;
  return at;
}

bool gone(ProcessIdentity owner) { return owner != 0 && !is_alive(owner); }

void wipe(Slot& slot) {
  slot.bytes.store(0);
  slot.wants_ns.store(0);
  slot.lost_ns.store(0);
  slot.sleeping.store(0);
  slot.beat_ns.store(now_ns());
}

}  // namespace

Machine* machine(const Settings& settings) {
  static Machine* const once = [&settings] {
    std::string what;
    void* at = map_shared(settings, &what);
    if (at == MAP_FAILED) {
      say("%s cannot be used (%s); this process gets an emulated machine of its own", what.c_str(),
          std::strerror(errno));
      at = mmap(nullptr, sizeof(Machine), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) std::abort();
    }
    return static_cast<Machine*>(at);
  }();
  return once;
}

int claim_slot(Device& device) {
  const ProcessIdentity self = own_identity();
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < kSlots; ++i) {
      ProcessIdentity nobody = 0;
      if (device.slots[i].owner.compare_exchange_strong(nobody, self)) {
        wipe(device.slots[i]);
        return i;
      }
    }
    reap_slots(device);
  }
  return -1;
}

void release_slot(Device& device, int slot) {
  wipe(device.slots[slot]);
  device.wanting[slot / 64].fetch_and(~(std::uint64_t{1} << slot % 64));
  device.slots[slot].owner.store(0);
}

void reap_slots(Device& device) {
  const ProcessIdentity self = own_identity();
  for (int i = 0; i < kSlots; ++i) {
    ProcessIdentity owner = device.slots[i].owner.load();
    // Taken over first and wiped then: a reaper that dies in between is reaped in turn.
    if (gone(owner) && device.slots[i].owner.compare_exchange_strong(owner, self)) release_slot(device, i);
  }
}

std::uint64_t used_bytes(Device& device) {
  std::uint64_t sum = 0;
  for (Slot& slot : device.slots) {
    if (slot.owner.load() != 0) sum += slot.bytes.load();
  }
  return sum;
}

bool charge(Device& device, int slot, std::uint64_t bytes, std::uint64_t card_bytes) {
  if (bytes > card_bytes) return false;
  for (int pass = 0; pass < 2; ++pass) {
    // Added first and taken back: two that race may both fail, but never both succeed beyond the limit.
    device.slots[slot].bytes.fetch_add(bytes);
    if (used_bytes(device) <= card_bytes) return true;
    device.slots[slot].bytes.fetch_sub(bytes);
    if (pass == 0) reap_slots(device);
  }
  return false;
}

void uncharge(Device& device, int slot, std::uint64_t bytes) { device.slots[slot].bytes.fetch_sub(bytes); }

void kick(Slot& slot) {
  slot.kick.fetch_add(1);
  if (slot.sleeping.load() != 0) syscall(SYS_futex, &slot.kick, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wait_for_kick(Slot& slot, std::uint32_t seen, std::uint64_t until_ns) {
  slot.sleeping.store(1);
  if (slot.kick.load() == seen) {
    timespec until{static_cast<std::time_t>(until_ns / kNanosPerSecond), static_cast<long>(until_ns % kNanosPerSecond)};
    // FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC; any early return is a reason to look again.
    syscall(SYS_futex, &slot.kick, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  slot.sleeping.store(0);
}

std::uint64_t reserve_copy(Device& device, Direction direction, std::uint64_t ready_ns, std::uint64_t cost_ns) {
  std::atomic<std::uint64_t>& free_ns = device.copy_free_ns[static_cast<int>(direction)];
  std::uint64_t free_at = free_ns.load();
  for (;;) {
    std::uint64_t end = std::max(ready_ns, free_at) + cost_ns;
    if (free_ns.compare_exchange_weak(free_at, end)) return end;
  }
}

void add_busy(Device& device, std::uint64_t end_ns, std::uint64_t cost_ns) {
  const std::uint64_t epoch = end_ns / kBusyBucketNs;
  Device::Bucket& bucket = device.busy[epoch % kBusyBuckets];
  std::uint64_t old = bucket.epoch.load();
  if (old != epoch && bucket.epoch.compare_exchange_strong(old, epoch)) bucket.busy_ns.store(0);
  bucket.busy_ns.fetch_add(cost_ns);
}

unsigned busy_percent(const Device& device, std::uint64_t now) {
  const std::uint64_t epoch = now / kBusyBucketNs;
  std::uint64_t busy = 0;
  for (const Device::Bucket& bucket : device.busy) {
    std::uint64_t age = epoch - bucket.epoch.load();
    if (age > 0 && age < kBusyBuckets) busy += bucket.busy_ns.load();
  }
  const std::uint64_t window = (kBusyBuckets - 1) * kBusyBucketNs;
  return static_cast<unsigned>(std::min<std::uint64_t>(100, (busy * 100 + window / 2) / window));
}

int claim_ipc_event(Machine& machine) {
  const ProcessIdentity self = own_identity();
  for (int i = 0; i < kIpcEvents; ++i) {
    IpcEvent& event = machine.events[i];
    ProcessIdentity owner = event.owner.load();
    if (owner != 0 && !gone(owner)) continue;
    if (!event.owner.compare_exchange_strong(owner, self)) continue;
    event.generation.fetch_add(1);
    event.recorded.store(0);
    event.done.store(0);
    event.done_ns.store(0);
    event.recorder.store(0);
    return i;
  }
  return -1;
}

void release_ipc_event(IpcEvent& event) {
  event.generation.fetch_add(1);
  event.owner.store(0);
}

// ---- the SMs --------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t kIdle = 0x100;
constexpr std::uint64_t word_of(std::uint64_t since, int slot, bool idle) {
  return since << 9 | (idle ? kIdle : 0) | static_cast<std::uint64_t>(slot + 1);
}
constexpr std::uint64_t since_of(std::uint64_t word) { return word >> 9; }
constexpr int slot_of(std::uint64_t word) { return static_cast<int>(word & 0xff) - 1; }
constexpr bool nobody_has(std::uint64_t word) { return (word & kIdle) != 0 || (word & 0xff) == 0; }

// Whether the slot's process can be given the SMs: alive and not stopped.
bool can_run(const Slot& slot, std::uint64_t now) {
  const std::uint64_t beat = slot.beat_ns.load();
  if (now < beat + kStaleNs) return true;
  return now < beat + kStoppedNs && is_alive(slot.owner.load());
}

}  // namespace

void Engine::set_wants(int slot, std::uint64_t since) {
  device_.slots[slot].wants_ns.store(since);
  device_.wanting[slot / 64].fetch_or(std::uint64_t{1} << slot % 64);
}

void Engine::clear_wants(int slot) {
  device_.wanting[slot / 64].fetch_and(~(std::uint64_t{1} << slot % 64));
  device_.slots[slot].wants_ns.store(0);
}

Engine::Next Engine::pick(int except, std::uint64_t at, std::uint64_t now) {
  Next earliest;
  for (int step = 1; step <= kSlots; ++step) {
    const int i = (except + step + kSlots) % kSlots;
    if (i == except || (device_.wanting[i / 64].load() >> i % 64 & 1) == 0) continue;
    const Slot& slot = device_.slots[i];
    const std::uint64_t wants = slot.wants_ns.load();
    if (wants == 0 || (i != slot_ && !can_run(slot, now))) continue;
    if (wants <= at) return {i, at};
    if (earliest.slot < 0 || wants < earliest.at) earliest = {i, wants};
  }
  return earliest;
}

bool Engine::give(std::uint64_t word, const Next& next) {
  const int from = nobody_has(word) ? -1 : slot_of(word);
  // Told before it is taken, so that the loser finds the time whenever it looks.
  if (from >= 0) device_.slots[from].lost_ns.store(next.at);
  if (!device_.engine.compare_exchange_strong(word, word_of(next.at, next.slot, false))) return false;
  clear_wants(next.slot);
  // It had runnable work when it lost the SMs, or it would have released them: it stays in the round.
  if (from >= 0) set_wants(from, next.at);
  if (next.slot != slot_) kick(device_.slots[next.slot]);
  return true;
}

bool Engine::acquire(std::uint64_t since, std::uint64_t now) {
  for (;;) {
    std::uint64_t word = device_.engine.load();
    if (!nobody_has(word) && slot_of(word) == slot_) {
      if (!held_ || word != word_) {
        word_ = word;
        ready_ns_ = since_of(word) + switch_ns_;
      }
      held_ = true;
      wanting_ = false;
      return true;
    }
    held_ = false;
    if (!wanting_ || device_.slots[slot_].wants_ns.load() == 0) {
      set_wants(slot_, since);
      wanting_ = true;
      continue;  // the word may have changed before the wish was visible
    }
    if (nobody_has(word)) {
      const bool resident = slot_of(word) == slot_;
      const Next next = pick(-1, since_of(word), now);
      if (next.slot < 0) continue;
      if (!give(word, next)) continue;
      if (next.slot == slot_) {
        word_ = word_of(next.at, slot_, false);
        ready_ns_ = next.at + (resident ? 0 : switch_ns_);
        held_ = true;
        wanting_ = false;
        return true;
      }
      continue;
    }
    const std::uint64_t slice_end = since_of(word) + slice_ns_;
    if (now < slice_end) {
      next_look_ns_ = slice_end;
      return false;
    }
    const Next next = pick(slot_of(word), slice_end, now);
    if (next.slot < 0 || next.at > now) {
      next_look_ns_ = next.slot < 0 ? now + slice_ns_ : next.at;
      return false;
    }
    give(word, next);
  }
}

bool Engine::kept_until(std::uint64_t end, std::uint64_t* lost) {
  for (;;) {
    const std::uint64_t word = device_.engine.load();
    if (word != word_) {
      // Not before it got them, whatever a racing giver left behind.
      const std::uint64_t at = std::max(device_.slots[slot_].lost_ns.load(), since_of(word_));
      if (at >= end) return true;
      *lost = at;
      break;
    }
    const std::uint64_t slice_end = since_of(word) + slice_ns_;
    if (end <= slice_end) return true;
    const Next next = pick(slot_, slice_end, now_ns());
    if (next.slot < 0 || next.at >= end) return true;
    // The hand-over that was due while this thread slept.
    if (!give(word, next)) continue;
    *lost = next.at;
    break;
  }
  held_ = false;
  wanting_ = true;
  return false;
}

bool Engine::involved() const {
  const std::uint64_t word = device_.engine.load();
  return held_ || wanting_ || (slot_of(word) == slot_ && !nobody_has(word)) ||
         (device_.wanting[slot_ / 64].load() >> slot_ % 64 & 1) != 0;
}

void Engine::release(std::uint64_t at) {
  for (;;) {
    std::uint64_t word = device_.engine.load();
    if (nobody_has(word) || slot_of(word) != slot_) break;
    at = std::max(at, since_of(word));
    const Next next = pick(slot_, at, now_ns());
    if (next.slot >= 0) {
      if (!device_.engine.compare_exchange_strong(word, word_of(next.at, next.slot, false))) continue;
      clear_wants(next.slot);
      kick(device_.slots[next.slot]);
      break;
    }
    if (!device_.engine.compare_exchange_strong(word, word_of(at, slot_, true))) continue;
    // Somebody may have begun to want them between the look and the release, and found them taken.
    const Next late = pick(slot_, at, now_ns());
    if (late.slot >= 0) kick(device_.slots[late.slot]);
    break;
  }
  clear_wants(slot_);
  held_ = false;
  wanting_ = false;
}

}  // namespace sluice::emulator
