// Who holds whom: closing, opening, and letting go of what is dead or stuck.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "internal.h"
#include "sluice/base/clock.h"

namespace sluice::board {
namespace {

bool is_muted(const Client& client, std::uint64_t now) { return client.muted_until_ns.load() > now; }

bool is_dropped(const Client& client) {
  const std::uint64_t dropped_at = client.dropped_at.load();
  return dropped_at != 0 && dropped_at - 1 == client.progress.load();
}

std::uint64_t later(std::uint64_t a, std::uint64_t b) { return a > b ? a : b; }

// What a held client finds when it looks at one of its holders.
enum class Hold { kRightful, kVoid, kStalled };

Hold judge(const Board* board, int closer, int held, std::uint64_t now) {
  const Client& holder = board->clients[closer];
  std::int32_t above = 0;
  std::int32_t own = 0;
  if (!live_priority(board, closer, &above) || !live_priority(board, held, &own) || above <= own) return Hold::kVoid;
  if (is_muted(holder, now) || is_dropped(holder)) return Hold::kVoid;
  if (!is_alive(holder.owner.load())) return Hold::kVoid;
  const std::uint64_t since =
      later(later(holder.progress_ns.load(), holder.active_ns.load()), board->clients[held].closed_ns.load());
  return elapsed(since, now) > kStallNs ? Hold::kStalled : Hold::kRightful;
}

// Notes that the client makes no progress, so that it holds nobody until it does.
void drop(Client& holder) {
  const std::uint64_t progress = holder.progress.load();
  std::uint64_t before = holder.dropped_at.load();
  if (before != progress + 1 && holder.dropped_at.compare_exchange_strong(before, progress + 1)) {
    holder.counters.stalls.fetch_add(1);
  }
}

void notify(Client& client) {
  if (client.watched.load() != 0) wake_watcher(client);
}

}  // namespace

void wake_watcher(Client& client) {
  client.changes.fetch_add(1);
  syscall(SYS_futex, &client.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void await_change(const Client& client, std::uint32_t changes, std::uint64_t timeout_ns) {
  const timespec timeout{static_cast<time_t>(timeout_ns / kNanosPerSecond),
                         static_cast<long>(timeout_ns % kNanosPerSecond)};
  syscall(SYS_futex, &client.changes, FUTEX_WAIT, changes, &timeout, nullptr, 0);
}

bool live_priority(const Board* board, int slot, std::int32_t* priority) {
  const Client& client = board->clients[slot];
  if (client.live.load() == 0) return false;
  const std::uint32_t job = client.job.load();
  if (job >= kJobs) return false;
  *priority = board->jobs[job].priority.load();
  return true;
}

std::uint64_t held_since(const Client& client, std::uint64_t closed, std::uint64_t now) {
  if (closed == 0 || client.active.load() == 0) return 0;
  return elapsed(later(closed, client.active_ns.load()), now);
}

GateBits close_gate(Board* board, int slot, GateBits bits, std::uint64_t now) {
  Client& client = board->clients[slot];
  // Stamped before and after: whoever opens in between finds a time that is right or none, never an old one.
  if (client.gate.load() == 0) client.closed_ns.store(now);
  const GateBits before = client.gate.fetch_or(bits);
  if (before == 0) client.closed_ns.store(now);
  if ((bits & kCloserBits) != 0 && (before & kCloserBits) == 0) notify(client);
  step("close: bit set");
  if (client.live.load() == 0) open_gate(board, slot, bits, now);
  return before;
}

GateBits open_gate(Board* board, int slot, GateBits bits, std::uint64_t now) {
  Client& client = board->clients[slot];
  const GateBits before = client.gate.fetch_and(~bits);
  if ((before & kCloserBits) != 0 && (before & ~bits & kCloserBits) == 0) notify(client);
  if (before != 0 && (before & ~bits) == 0) {
    const std::uint64_t held = held_since(client, client.closed_ns.exchange(0), now);
    if (held != 0) {
      client.counters.held_ns.fetch_add(held);
      client.counters.holds.fetch_add(1);
    }
  }
  return before;
}

bool may_hold(const Board* board, int slot, std::uint64_t now) {
  const Client& client = board->clients[slot];
  return closer_bit(slot) != 0 && client.live.load() != 0 && !is_muted(client, now) && !is_dropped(client);
}

bool is_below(const Board* board, int held, std::uint64_t now) {
  std::int32_t own = 0;
  if (!live_priority(board, held, &own)) return false;
  bool found = false;
  for_each_occupied(board, [&](int slot) {
    std::int32_t above = 0;
    found = found || (live_priority(board, slot, &above) && above > own && may_hold(board, slot, now) &&
                      board->jobs[board->clients[slot].job.load() % kJobs].min_below_permille.load() == 0);
  });
  return found;
}

bool hold_again(const Board* board, int closer, const Holding& holding, std::uint64_t now) {
  const bool changed = !holding.complete || board->epoch.load() != holding.epoch ||
                       board->clients[closer].dropped_at.load() != holding.dropped_at;
  return changed && may_hold(board, closer, now);
}

int hold_below(Board* board, int closer, std::uint64_t now, Holding* holding) {
  const GateBits bit = closer_bit(closer);
  if (bit == 0) return 0;
  if (holding != nullptr) {
    holding->epoch = board->epoch.load();
    holding->dropped_at = board->clients[closer].dropped_at.load();
    holding->complete = false;
  }
  int below = 0;
  bool closed_any = false;
  if (may_hold(board, closer, now)) {
    for_each_occupied(board, [&](int slot) {
      if (slot == closer) return;
      const auto is_below = [&] {
        std::int32_t mine = 0;
        std::int32_t theirs = 0;
        return live_priority(board, closer, &mine) && live_priority(board, slot, &theirs) && theirs < mine;
      };
      const bool has_bit = (board->clients[slot].gate.load() & bit) != 0;
      if (is_below() && !has_bit) {
        close_gate(board, slot, bit, now);
        closed_any = true;
        step("hold: one closed");
        // The slot may have changed hands before the bit arrived.
        if (!is_below()) {
          open_gate(board, slot, bit, now);
          return;
        }
        ++below;
      } else if (is_below()) {
        ++below;
      } else if (has_bit) {
        open_gate(board, slot, bit, now);
      }
    });
    if (closed_any) board->clients[closer].counters.closes.fetch_add(1);
  }
  // Looked at again: a mute or a drop that came meanwhile would not have found the bits set since.
  if (may_hold(board, closer, now)) {
    if (holding != nullptr) holding->complete = true;
    return below;
  }
  release_held(board, closer, now);
  return 0;
}

void release_held(Board* board, int closer, std::uint64_t now) {
  const GateBits bit = closer_bit(closer);
  if (bit == 0) return;
  for_each_occupied(board, [&](int slot) {
    if ((board->clients[slot].gate.load() & bit) == 0) return;
    open_gate(board, slot, bit, now);
    step("release: one opened");
  });
}

GateBits check_holders(Board* board, int held, std::uint64_t now) {
  Client& client = board->clients[held];
  GateBits removed = 0;
  const GateBits closed = client.gate.load();
  if (closed == 0 || !can_judge_life()) return 0;
  for (GateBits bits = closed & ((GateBits{1} << kClosers) - 1); bits != 0; bits &= bits - 1) {
    const int closer = __builtin_ctzll(bits);
    const Hold hold = judge(board, closer, held, now);
    if (hold == Hold::kRightful) continue;
    if (hold == Hold::kStalled) drop(board->clients[closer]);
    step("check: judged");
    open_gate(board, held, closer_bit(closer), now);
    removed |= closer_bit(closer);
    // The slot may have a new owner, or its owner made progress, since it was judged: let it set its bit again.
    if (judge(board, closer, held, now) == Hold::kRightful) bump_epoch(board);
  }
  // A daemon that was only late finds its bit gone when it looks again, and sets it again.
  const bool silent = elapsed(board->daemon_ns.load(), now) > kStallNs;
  if ((closed & kTurnBit) != 0 && (silent || !is_alive(board->daemon.load()))) {
    open_gate(board, held, kTurnBit, now);
    removed |= kTurnBit;
    if (is_alive(board->daemon.load())) bump_epoch(board);
  }
  return removed;
}

}  // namespace sluice::board
