// What clients hold of their GPU's memory, and whether their job may take more.
//
// A reservation adds to the client's own counter; the question is only whether the job's sum allows it. So that two
// processes cannot both pass, they take turns: Job::memory_turn is a number of the turn (56 bits) and, in the low byte,
// the client that has it, plus 1. It is taken and given back by compare-and-swap. Who finds it taken waits a little and
// then takes it from its holder, dead or stopped; a holder that wakes up finds its turn gone, takes back what it added
// and asks again.
#include <sched.h>

#include "internal.h"
#include "sluice/base/clock.h"

namespace sluice::board {
namespace {

constexpr std::uint64_t kHolderMask = 0xff;
static_assert(kClients < static_cast<int>(kHolderMask));
constexpr int kYields = 256;  // a turn takes less than a microsecond, unless its holder is not running

bool belongs_to(const Client& client, int job) {
  return client.owner.load() != 0 && client.live.load() != 0 && client.job.load() == static_cast<std::uint32_t>(job);
}

// Also of those that are dead and not reaped: a few loads.
std::uint64_t sum_of(const Board* board, int job) {
  std::uint64_t sum = 0;
  for_each_occupied(board, [&](int slot) {
    if (belongs_to(board->clients[slot], job)) sum += board->clients[slot].memory_bytes.load();
  });
  return sum;
}

bool fits(const Board* board, int job, std::uint64_t bytes, std::uint64_t limit) {
  const std::uint64_t used = sum_of(board, job);
  return used <= limit && bytes <= limit - used;
}

std::uint64_t take_turn(Job& job, int client) {
  for (;;) {
    std::uint64_t before = job.memory_turn.load();
    for (int i = 0; (before & kHolderMask) != 0 && i < kYields; ++i) {
      sched_yield();
      const std::uint64_t now = job.memory_turn.load();
      if (now != before) i = 0;
      before = now;
    }
    const std::uint64_t mine = ((before & ~kHolderMask) + kHolderMask + 1) | (static_cast<std::uint64_t>(client) + 1);
    if (job.memory_turn.compare_exchange_strong(before, mine)) return mine;
  }
}

bool try_reserve(Board* board, int client, int index, std::uint64_t bytes, std::uint64_t limit) {
  Job& job = board->jobs[index];
  for (;;) {
    std::uint64_t turn = take_turn(job, client);
    step("reserve: turn taken");
    const bool allowed = fits(board, index, bytes, limit);
    if (allowed) add_memory(board, client, bytes);
    step("reserve: added");
    if (job.memory_turn.compare_exchange_strong(turn, turn & ~kHolderMask)) return allowed;
    if (allowed) release_memory(board, client, bytes);
  }
}

}  // namespace

bool reserve_memory(Board* board, int client, std::uint64_t bytes) {
  const std::uint32_t index = board->clients[client].job.load();
  const std::uint64_t limit = index < kJobs ? board->jobs[index].memory_limit_bytes.load() : 0;
  if (limit == 0) {
    add_memory(board, client, bytes);
    return true;
  }
  if (try_reserve(board, client, static_cast<int>(index), bytes, limit)) return true;
  return reap(board, now_ns()) > 0 && try_reserve(board, client, static_cast<int>(index), bytes, limit);
}

void add_memory(Board* board, int client, std::uint64_t bytes) { board->clients[client].memory_bytes.fetch_add(bytes); }

void release_memory(Board* board, int client, std::uint64_t bytes) {
  std::atomic<std::uint64_t>& held = board->clients[client].memory_bytes;
  std::uint64_t before = held.load();
  while (!held.compare_exchange_weak(before, before > bytes ? before - bytes : 0)) {
  }
}

std::uint64_t memory_of(const Board* board, int job) {
  std::uint64_t sum = 0;
  for_each_occupied(board, [&](int slot) {
    const Client& client = board->clients[slot];
    if (belongs_to(client, job) && is_alive(client.owner.load())) sum += client.memory_bytes.load();
  });
  return sum;
}

std::uint64_t memory_promised(const Board* board, int except) {
  std::uint64_t sum = 0;
  const std::uint64_t own = except >= 0 ? board->jobs[except].id.load() : 0;
  for (int i = 0; i < kJobs; ++i) {
    const Job& job = board->jobs[i];
    const std::uint64_t limit = job.memory_limit_bytes.load();
    // A program's ranks have a place each on every card: they would wait for each other for ever.
    if (own != 0 && job.id.load() == own) continue;
    if (i == except || limit == 0 || job.owner.load() == 0 || job.live.load() == 0 || job.waiting.load() != 0) continue;
    const std::uint64_t held = memory_of(board, i);
    // A job whose `sluice run` was killed may still start nothing new, but what it has goes on growing.
    if (held == 0 && !is_alive(job.owner.load())) continue;
    if (held < limit) sum += limit - held;
  }
  return sum;
}

bool others_wait_before(const Board* board, int job) {
  const std::uint64_t own = board->jobs[job].id.load();
  for (int i = 0; i < kJobs; ++i) {
    const Job& other = board->jobs[i];
    if (i == job || other.live.load() == 0 ||
        other.waiting.load() != static_cast<std::uint32_t>(MemoryWait::kWaiting) || other.id.load() >= own)
      continue;
    if (is_alive(other.owner.load())) return true;
  }
  return false;
}

}  // namespace sluice::board
