#include "turns.h"

#include <algorithm>
#include <array>

namespace sluice::daemon {
namespace {

constexpr board::GateBits kFromAbove = (board::GateBits{1} << board::kClosers) - 1;

// How long the client has been held so far, the present time included.
std::uint64_t held_ns(const board::Client& client, std::uint64_t now) {
  std::uint64_t held = client.counters.held_ns.load();
  const std::uint64_t closed = client.closed_ns.load();
  if (client.gate.load() != 0 && closed != 0 && client.active.load() != 0) {
    const std::uint64_t since = std::max(closed, client.active_ns.load());
    if (now > since) held += now - since;
  }
  return held;
}

void add(policy::JobView& view, const board::Client& client, std::uint64_t now) {
  const bool active = client.active.load() != 0;
  const std::uint64_t since = client.active_ns.load();
  if (active) view.active_since_ns = view.active ? std::min(view.active_since_ns, since) : since;
  view.active = view.active || active;
  view.progress_ns = std::max(view.progress_ns, client.progress_ns.load());
  view.tail_ns = std::max(view.tail_ns, client.tail_ns.load());
  view.held_ns = std::max(view.held_ns, held_ns(client, now));
  view.held_from_above = view.held_from_above || (active && (client.gate.load() & kFromAbove) != 0);
  view.can_be_closed = view.can_be_closed || client.bypass.load() == 0;
}

// Calls `visit(slot, job)` for every live client.
template <class F>
void for_each_live(const board::Board& board, F visit) {
  board::for_each_occupied(&board, [&](int slot) {
    const board::Client& client = board.clients[slot];
    if (client.live.load() == 0) return;
    const std::uint32_t job = client.job.load();
    if (job < board::kJobs) visit(slot, board.jobs[job]);
  });
}

bool is_closed(const board::Board& board, int slot) { return (board.clients[slot].gate.load() & board::kTurnBit) != 0; }

}  // namespace

policy::Snapshot snapshot(const board::Board& board, std::uint64_t now) {
  policy::Snapshot snapshot;
  snapshot.now_ns = now;
  std::array<std::uint8_t, board::kJobs> places{};  // in snapshot.jobs, plus 1
  static_assert(board::kJobs < 256);
  for_each_live(board, [&](int slot, const board::Job& job) {
    std::uint8_t& place = places[static_cast<std::size_t>(&job - board.jobs)];
    if (place == 0) {
      // Ranks of one program have a slot each and are one job.
      const std::uint64_t id = job.id.load();
      const auto at = std::find_if(snapshot.jobs.begin(), snapshot.jobs.end(),
                                   [&](const policy::JobView& view) { return view.id == id; });
      place = static_cast<std::uint8_t>(at - snapshot.jobs.begin() + 1);
      if (at == snapshot.jobs.end()) {
        policy::JobView& view = snapshot.jobs.emplace_back();
        view.id = id;
        view.priority = job.priority.load();
        view.share = std::max(1u, job.share.load());
        view.min_below_permille = job.min_below_permille.load();
        view.can_be_closed = false;
      }
    }
    add(snapshot.jobs[place - 1u], board.clients[slot], now);
  });
  return snapshot;
}

bool any_active(const board::Board& board) {
  bool found = false;
  board::for_each_occupied(&board, [&](int slot) {
    const board::Client& client = board.clients[slot];
    found = found || (client.active.load() != 0 && client.live.load() != 0);
  });
  return found;
}

bool contended(const policy::Snapshot& snapshot) {
  for (const policy::JobView& job : snapshot.jobs) {
    if (!job.active) continue;
    for (const policy::JobView& other : snapshot.jobs) {
      if (!other.active || other.id == job.id) continue;
      if (other.priority == job.priority || (job.min_below_permille > 0 && other.priority < job.priority)) return true;
    }
  }
  return false;
}

void apply(board::Board* board, const policy::Decision& decision, std::uint64_t now) {
  std::array<bool, board::kClients> close{};
  for_each_live(*board, [&](int slot, const board::Job& job) {
    const bool closed = std::count(decision.closed.begin(), decision.closed.end(), job.id.load()) > 0;
    close[static_cast<std::size_t>(slot)] = closed && board->clients[slot].bypass.load() == 0;
  });
  board::for_each_occupied(board, [&](int slot) {
    if (is_closed(*board, slot) && !close[static_cast<std::size_t>(slot)])
      board::open_gate(board, slot, board::kTurnBit, now);
  });
  board::for_each_occupied(board, [&](int slot) {
    if (!is_closed(*board, slot) && close[static_cast<std::size_t>(slot)])
      board::close_gate(board, slot, board::kTurnBit, now);
  });
  if (decision.mutes.empty()) return;
  for_each_live(*board, [&](int slot, const board::Job& job) {
    for (const policy::Decision::Mute& mute : decision.mutes) {
      board::Client& client = board->clients[slot];
      if (mute.id != job.id.load() || client.muted_until_ns.load() == mute.until_ns) continue;
      client.muted_until_ns.store(mute.until_ns);
      board::release_held(board, slot, now);
    }
  });
}

}  // namespace sluice::daemon
