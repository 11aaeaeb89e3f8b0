// Shared by the sources of the board room only.
#pragma once

#include "sluice/board.h"

namespace sluice::board {

inline constexpr std::uint32_t kNoJob = ~std::uint32_t{0};

// An owner that is never alive (its pid is 0): the slot's owner has given it up, but others still refer to it.
inline constexpr ProcessIdentity kReleased = ProcessIdentity{1} << kPidBits;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::int32_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);

inline constexpr std::atomic<std::uint64_t> Counters::*kCounters[] = {
    &Counters::launches, &Counters::gated,  &Counters::captured,        &Counters::gates,
    &Counters::held_ns,  &Counters::holds,  &Counters::gpu_ns,          &Counters::long_launches,
    &Counters::closes,   &Counters::stalls, &Counters::unknown_lookups, &Counters::graphs_gated,
    &Counters::preempted};
static_assert(sizeof(Counters) == (sizeof(kCounters) / sizeof(kCounters[0]) + kWholeReasons) * sizeof(std::uint64_t));

// Calls `visit` with each counter of one and the same counter of the other.
template <class A, class B, class F>
void for_each_counter(A& a, B& b, F visit) {
  for (auto member : kCounters) visit(a.*member, b.*member);
  for (int reason = 0; reason < kWholeReasons; ++reason) visit(a.graphs_whole[reason], b.graphs_whole[reason]);
}

// Where a process may die in the middle of the protocol. Nothing in a normal build; the death test's build supplies
// the function and kills the process there.
#ifdef SLUICE_BOARD_STEPS
void step(const char* name);
#else
inline void step(const char*) {}
#endif

// Who may be called dead: nobody while the caller cannot even see itself (no /proc).
inline bool can_judge_life() { return own_identity() != 0; }

inline void bump_epoch(Board* board) { board->epoch.fetch_add(1); }

inline std::uint64_t elapsed(std::uint64_t since, std::uint64_t now) { return now > since ? now - since : 0; }

// Priority of the job of client `slot`; false if the slot takes no part now.
bool live_priority(const Board* board, int slot, std::int32_t* priority);

// How long the client of `slot` has been held when its gate closed at `closed` (0: unknown), as of `now`.
std::uint64_t held_since(const Client& client, std::uint64_t closed, std::uint64_t now);

}  // namespace sluice::board
