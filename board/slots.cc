// Slots of jobs and clients: claimed, given back, taken from the dead; and their counters.
#include <cstring>

#include "internal.h"
#include "sluice/base/clock.h"

namespace sluice::board {
namespace {

template <std::size_t N>
void copy_text(char (&to)[N], const char* from) {
  const std::size_t length = strnlen(from, N - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

void zero(Counters& counters) {
  for_each_counter(counters, counters, [](auto& counter, auto&) { counter.store(0); });
}

void zero(LongKernel (&kernels)[kLongKernels]) {
  for (LongKernel& kernel : kernels) {
    kernel.launches.store(0);
    kernel.longest_ns.store(0);
  }
}

void raise(std::atomic<std::uint64_t>& value, std::uint64_t at_least) {
  std::uint64_t before = value.load();
  while (before < at_least && !value.compare_exchange_weak(before, at_least)) {
  }
}

// Adds one client's long kernel to its job's. An entry is taken by making longest_ns non-zero, named, and then shown
// by making launches non-zero; two entries of one name are possible and are united by totals().
void merge_long_kernel(Job& job, const LongKernel& from) {
  const std::uint64_t launches = from.launches.load();
  if (launches == 0) return;
  const std::uint64_t longest = from.longest_ns.load() | 1;
  for (LongKernel& entry : job.long_kernels) {
    if (entry.launches.load() != 0) {
      if (std::strncmp(entry.name, from.name, sizeof entry.name) != 0) continue;
      raise(entry.longest_ns, longest);
      entry.launches.fetch_add(launches);
      return;
    }
    std::uint64_t free = 0;
    if (!entry.longest_ns.compare_exchange_strong(free, longest)) continue;
    copy_text(entry.name, from.name);
    entry.launches.store(launches);
    return;
  }
}

// Moves a client's counters to its job's. Each is taken out before it is added, so a reaper that dies here loses one
// figure at most and counts none twice.
void merge_into_job(Board* board, Client& client) {
  const std::uint32_t index = client.job.load();
  if (index >= kJobs || board->jobs[index].owner.load() == 0) return;
  Job& job = board->jobs[index];
  for_each_counter(job.counters, client.counters, [](auto& sum, auto& part) { sum.fetch_add(part.exchange(0)); });
  for (LongKernel& kernel : client.long_kernels) {
    merge_long_kernel(job, kernel);
    kernel.launches.store(0);
  }
}

void wipe(Client& client) {
  client.gate.store(0);
  client.closed_ns.store(0);
  client.job.store(kNoJob);
  client.bypass.store(0);
  client.active.store(0);
  client.active_ns.store(0);
  client.progress.store(0);
  client.progress_ns.store(0);
  client.tail_ns.store(0);
  client.dropped_at.store(0);
  client.watched.store(0);
  client.muted_until_ns.store(0);
  client.memory_bytes.store(0);
  zero(client.counters);
  zero(client.long_kernels);
}

void wipe(Job& job) {
  job.priority.store(0);
  job.share.store(1);
  job.min_below_permille.store(0);
  job.gpus.store(1);
  job.mps.store(0);
  job.id.store(0);
  job.ranks.store(0);
  job.child.store(0);
  job.started_ns.store(0);
  job.clients_seen.store(0);
  job.memory_limit_bytes.store(0);
  job.memory_refusals.store(0);
  job.memory_told.store(0);
  job.waiting.store(0);
  zero(job.counters);
  zero(job.long_kernels);
}

std::atomic<std::uint64_t>& occupied_word(Board* board, int slot) { return board->occupied[slot / 64]; }
std::uint64_t occupied_bit(int slot) { return std::uint64_t{1} << (slot % 64); }

bool has_clients(const Board* board, int job) {
  for (const Client& client : board->clients) {
    if (client.owner.load() != 0 && client.job.load() == static_cast<std::uint32_t>(job)) return true;
  }
  return false;
}

// REQUIRES: the caller's identity is in `owner`, by compare-and-swap from an owner that is gone. May be repeated from
// the start if the caller dies in it.
void free_client(Board* board, int slot, std::uint64_t now) {
  Client& client = board->clients[slot];
  client.live.store(0);
  step("reap: not live");
  if (const GateBits bit = closer_bit(slot); bit != 0) {
    // All slots, free ones too: it may have died between setting a bit and looking again.
    for (int other = 0; other < kClients; ++other) {
      if ((board->clients[other].gate.load() & bit) != 0) open_gate(board, other, bit, now);
    }
  }
  step("reap: bits cleared");
  open_gate(board, slot, ~GateBits{0}, now);
  merge_into_job(board, client);
  step("reap: merged");
  wipe(client);
  occupied_word(board, slot).fetch_and(~occupied_bit(slot));
  bump_epoch(board);
  step("reap: wiped");
  client.owner.store(0);
}

// Takes job `index` from `owner`, which is gone or the caller itself, and frees it unless clients still refer to it.
// Against a client that joins at the same moment: here live is cleared and then the clients are read; there the
// client is written and then live is read. One of the two sees the other.
bool free_job(Board* board, int index, ProcessIdentity owner, ProcessIdentity self) {
  Job& job = board->jobs[index];
  if (has_clients(board, index)) return false;
  ProcessIdentity expected = owner;
  if (!job.owner.compare_exchange_strong(expected, self)) return false;
  job.live.store(0);
  step("reap: job not live");
  if (has_clients(board, index)) {
    job.live.store(1);
    job.owner.store(kReleased);
    return false;
  }
  wipe(job);
  step("reap: job wiped");
  job.owner.store(0);
  return true;
}

// Whether no live job has a lower priority than `priority`.
bool is_lowest(const Board* board, std::int32_t priority) {
  for (const Job& job : board->jobs) {
    if (job.live.load() != 0 && job.priority.load() < priority) return false;
  }
  return true;
}

int take_client(Board* board, int from, int to, ProcessIdentity owner) {
  for (int slot = from; slot < to; ++slot) {
    ProcessIdentity free = 0;
    if (board->clients[slot].owner.load() == 0 && board->clients[slot].owner.compare_exchange_strong(free, owner)) {
      return slot;
    }
  }
  return -1;
}

int free_closers(const Board* board) {
  int free = 0;
  for (int slot = 0; slot < kClosers; ++slot) free += board->clients[slot].owner.load() == 0 ? 1 : 0;
  return free;
}

int pick_client(Board* board, int job, ProcessIdentity owner) {
  // The dead must not keep the slots with bits from the living.
  if (free_closers(board) <= kReservedClosers) reap(board, now_ns());
  const bool spare_them = free_closers(board) <= kReservedClosers && is_lowest(board, board->jobs[job].priority.load());
  int slot = spare_them ? -1 : take_client(board, 0, kClosers, owner);
  if (slot < 0) slot = take_client(board, kClosers, kClients, owner);
  if (slot < 0 && spare_them) slot = take_client(board, 0, kClosers, owner);
  return slot;
}

void add_long_kernel(JobTotals& totals, const LongKernel& from) {
  const std::uint64_t launches = from.launches.load();
  if (launches == 0) return;
  const std::uint64_t longest = from.longest_ns.load();
  for (JobTotals::Long& entry : totals.long_kernels) {
    if (entry.launches != 0 && std::strncmp(entry.name, from.name, sizeof entry.name) != 0) continue;
    if (entry.launches == 0) copy_text(entry.name, from.name);
    entry.launches += launches;
    if (longest > entry.longest_ns) entry.longest_ns = longest;
    return;
  }
}

}  // namespace

const char* bypass_text(Bypass bypass) {
  switch (bypass) {
    case Bypass::kNone:
      return "";
    case Bypass::kNoMemOps:
      return "the driver or GPU has no stream memory operations (version 2; driver 515 or newer)";
    case Bypass::kRegisterFailed:
      return "the driver refused to register the board's memory (is SLUICE_RUNTIME_DIR on a memory file system?)";
    case Bypass::kNoSlot:
      return "no free slot on the board";
  }
  return "unknown reason";
}

const char* whole_text(Whole reason) {
  switch (reason) {
    case Whole::kByHand:
      return "built node by node";
    case Whole::kPriority:
      return "captured at high priority";
    case Whole::kOff:
      return "SLUICE_GRAPH_SPACING is 0";
    case Whole::kIntoGraph:
      return "captured into a graph of the program's own";
    case Whole::kFromDevice:
      return "launched from the device, too";
    case Whole::kRefused:
      return "the driver takes no gates there";
  }
  return "unknown reason";
}

WholeGraphs whole_graphs(const JobTotals& totals) {
  WholeGraphs all;
  std::uint64_t most = 0;
  for (int reason = 0; reason < kWholeReasons; ++reason) {
    const std::uint64_t launches = totals.graphs_whole[reason];
    all.launches += launches;
    if (launches <= most) continue;
    most = launches;
    all.reason = whole_text(static_cast<Whole>(reason));
  }
  return all;
}

Result<int> claim_job(Board* board, const JobSpec& spec, ProcessIdentity owner) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (int index = 0; index < kJobs; ++index) {
      Job& job = board->jobs[index];
      ProcessIdentity free = 0;
      if (job.owner.load() != 0 || !job.owner.compare_exchange_strong(free, owner)) continue;
      step("claim: job owned");
      wipe(job);
      job.priority.store(spec.priority);
      job.share.store(spec.share == 0 ? 1 : spec.share);
      job.min_below_permille.store(spec.min_below_permille);
      job.gpus.store(spec.gpus);
      job.mps.store(spec.mps ? 1 : 0);
      job.memory_limit_bytes.store(spec.memory_limit_bytes);
      job.waiting.store(static_cast<std::uint32_t>(spec.waiting ? MemoryWait::kWaiting : MemoryWait::kNone));
      if (spec.id != 0) raise(board->next_job_id, spec.id + 1);
      job.id.store(spec.id != 0 ? spec.id : board->next_job_id.fetch_add(1));
      job.ranks.store(spec.ranks);
      job.started_ns.store(now_ns());
      copy_text(job.name, spec.name);
      step("claim: job filled");
      job.live.store(1);
      return index;
    }
    reap(board, now_ns());
  }
  return Status::error(Code::kResourceExhausted, "all %d job slots of %s are taken; wait for a job to end", kJobs,
                       board->device);
}

void release_job(Board* board, int index) {
  Job& job = board->jobs[index];
  const ProcessIdentity owner = job.owner.load();
  if (owner == 0 || free_job(board, index, owner, owner)) return;
  ProcessIdentity expected = owner;
  job.owner.compare_exchange_strong(expected, kReleased);
}

Result<int> claim_client(Board* board, int job, ProcessIdentity owner) {
  if (job < 0 || job >= kJobs) return Status::error(Code::kInvalidArgument, "no job slot %d on the board", job);
  const int slot = pick_client(board, job, owner);
  if (slot < 0) {
    return Status::error(Code::kResourceExhausted, "all %d process slots of %s are taken; wait for a job to end",
                         kClients, board->device);
  }
  step("claim: owned");
  Client& client = board->clients[slot];
  wipe(client);
  client.job.store(static_cast<std::uint32_t>(job));
  step("claim: job named");
  if (board->jobs[job].live.load() == 0) {
    client.job.store(kNoJob);
    client.owner.store(0);
    return Status::error(Code::kNotFound, "job slot %d of %s is empty: the job has ended", job, board->device);
  }
  const std::uint64_t now = now_ns();
  client.active_ns.store(now);
  client.progress_ns.store(now);
  board->jobs[job].clients_seen.fetch_add(1);
  occupied_word(board, slot).fetch_or(occupied_bit(slot));
  step("claim: filled");
  client.live.store(1);
  bump_epoch(board);
  return slot;
}

void leave(Board* board, int slot) {
  const std::uint64_t now = now_ns();
  board->clients[slot].live.store(0);
  step("leave: not live");
  release_held(board, slot, now);
  open_gate(board, slot, ~GateBits{0}, now);
  bump_epoch(board);
}

namespace {

bool reap_client(Board* board, int slot, ProcessIdentity owner, ProcessIdentity self, std::uint64_t now) {
  if (!board->clients[slot].owner.compare_exchange_strong(owner, self)) return false;
  step("reap: taken");
  free_client(board, slot, now);
  return true;
}

}  // namespace

int reap_some(Board* board, std::uint64_t now, int* cursor, int most) {
  const ProcessIdentity self = own_identity();
  if (self == 0) return 0;
  int freed = 0, looks = 0;
  for (int visited = 0; visited < kClients + kJobs && looks < most; ++visited) {
    const int at = *cursor;
    *cursor = (at + 1) % (kClients + kJobs);
    const bool is_client = at < kClients;
    const ProcessIdentity owner = is_client ? board->clients[at].owner.load() : board->jobs[at - kClients].owner.load();
    if (owner == 0) continue;
    ++looks;
    if (is_alive(owner)) continue;
    const bool freed_it =
        is_client ? reap_client(board, at, owner, self, now) : free_job(board, at - kClients, owner, self);
    freed += freed_it ? 1 : 0;
  }
  return freed;
}

int reap_clients(Board* board, int job, std::uint64_t now) {
  const ProcessIdentity self = own_identity();
  if (self == 0) return 0;
  int freed = 0;
  for (int slot = 0; slot < kClients; ++slot) {
    const ProcessIdentity owner = board->clients[slot].owner.load();
    if (owner == 0 || board->clients[slot].job.load() != static_cast<std::uint32_t>(job) || is_alive(owner)) continue;
    freed += reap_client(board, slot, owner, self, now) ? 1 : 0;
  }
  return freed;
}

int reap(Board* board, std::uint64_t now) {
  int cursor = 0;  // clients first: a job's slot goes when its clients have gone
  return reap_some(board, now, &cursor, kClients + kJobs);
}

JobTotals totals(const Board* board, int index, std::uint64_t now) {
  const Job& job = board->jobs[index];
  JobTotals sum{};
  Counters all{};
  const auto add = [&](const Counters& counters) {
    for_each_counter(all, counters, [](auto& to, const auto& part) { to.fetch_add(part.load()); });
  };
  add(job.counters);
  for (const LongKernel& kernel : job.long_kernels) add_long_kernel(sum, kernel);
  for (const Client& client : board->clients) {
    if (client.owner.load() == 0 || client.job.load() != static_cast<std::uint32_t>(index)) continue;
    add(client.counters);
    for (const LongKernel& kernel : client.long_kernels) add_long_kernel(sum, kernel);
    if (client.live.load() == 0) continue;
    if (client.gate.load() != 0) all.held_ns.fetch_add(held_since(client, client.closed_ns.load(), now));
    if (is_alive(client.owner.load())) ++sum.clients;
    if (sum.bypass == 0) sum.bypass = client.bypass.load();
  }
  sum.launches = all.launches.load();
  sum.gated = all.gated.load();
  sum.captured = all.captured.load();
  sum.gates = all.gates.load();
  sum.held_ns = all.held_ns.load();
  sum.holds = all.holds.load();
  sum.gpu_ns = all.gpu_ns.load();
  sum.long_launches = all.long_launches.load();
  sum.closes = all.closes.load();
  sum.stalls = all.stalls.load();
  sum.unknown_lookups = all.unknown_lookups.load();
  sum.graphs_gated = all.graphs_gated.load();
  sum.preempted = all.preempted.load();
  for (int reason = 0; reason < kWholeReasons; ++reason) sum.graphs_whole[reason] = all.graphs_whole[reason].load();
  sum.clients_seen = job.clients_seen.load();
  sum.memory_bytes = memory_of(board, index);
  sum.memory_limit_bytes = job.memory_limit_bytes.load();
  sum.memory_refusals = job.memory_refusals.load();
  return sum;
}

}  // namespace sluice::board
