// The board: one shared-memory file per GPU and user, or group of users, where that GPU's jobs and the daemon meet.
//
// It holds jobs (what `sluice run` was asked for) and clients (processes of a job that hold a context on this GPU).
// A client's gate word is what the GPU's front end waits on; the bits in it are its closers. All of it is plain
// memory and atomics: no lock, so a process may be killed anywhere without blocking anybody.
//
// Protocol (model-checked in board/model/gate.pml)
//   * A slot (job or client) is claimed by a compare-and-swap of `owner` from 0 to the claimer's ProcessIdentity, and
//     taken from a dead owner by a compare-and-swap to the reaper's identity; the reaper wipes it and stores 0. Hence
//     a slot is reused only when its process is gone, and a reaper that dies is reaped in turn.
//   * Client i (i < kClosers) closes another by setting bit i of its gate, and opens it by clearing bit i: fetch_or
//     and fetch_and only. The daemon's policy has bits of its own. Whoever finds a closer dead clears its bit.
//   * Whoever sets or clears a bit looks again afterwards at what justified it. A bit set without reason is taken
//     back; where a bit may have been lost, `epoch` grows. A client that is active therefore calls hold_below again
//     whenever hold_again() says so: that repairs everything.
//   * Memory is counted for each client and never for a job: a job's use is the sum over its live clients, so nothing
//   is
//     left of a process that was killed. Reservations of one job take turns by Job::memory_turn; who is stopped or
//     killed in its turn loses it to the next comer, and its own reservation with it.
//   * The GPU only ever reads this memory, so a late access of a dead process's GPU work can damage nothing.
//   * A board that is deleted while in use lives on among those who have it mapped; later comers create a new one, and
//     the two groups do not see each other.
//
// Built without exceptions, allocation or a C++ runtime, because the shim contains it. Thread safe throughout.
// The file is private to the user (directory 0700, file 0600), or shared by a group (2770, 0660;
// sluice/base/sharing.h); checked when it is mapped, and never through a symbolic link.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sluice/base/process.h"
#include "sluice/base/status.h"

namespace sluice::board {

inline constexpr std::uint32_t kMagic = 0x44424c53;  // "SLBD"
inline constexpr std::uint32_t kVersion = 4;         // of everything below; another version is refused
inline constexpr int kClients = 128;                 // processes with a context, a GPU
inline constexpr int kClosers = 62;                  // only the first of them have a bit and can hold others
inline constexpr int kJobs = 128;
inline constexpr int kLongKernels = 4;  // names kept of kernels longer than the quantum, a client

using GateBits = std::uint64_t;
inline constexpr GateBits kTurnBit = GateBits{1} << 62;   // set by the daemon: not this job's turn among its equals
inline constexpr GateBits kSpareBit = GateBits{1} << 63;  // set by tests and by tools that freeze a job
inline constexpr GateBits kCloserBits = kTurnBit - 1;
inline constexpr GateBits closer_bit(int client) { return client < kClosers ? GateBits{1} << client : 0; }

inline constexpr std::uint64_t kDefaultQuantumNs = 100'000;
// Long enough that a request which waited behind another finds the gates still closed: it is those requests that make
// the p99. Measured in docs/results.md; longer only costs the jobs below.
inline constexpr std::uint64_t kDefaultLingerNs = 200'000;
inline constexpr std::uint64_t kStallNs = 100'000'000;  // no progress for so long while somebody is held: let go

// Why a client is not gated although it could be held. Kept in Client::bypass; 0 is "nothing wrong".
enum class Bypass : std::uint32_t {
  kNone = 0,
  kNoMemOps = 1,        // the driver or device has no stream memory operations (v2)
  kRegisterFailed = 2,  // cuMemHostRegister refused the board
  kNoSlot = 4,
};
const char* bypass_text(Bypass bypass);

// Why a graph that has more nodes than may lie between two gates was launched without any inside: it is held before it
// starts, or not at all.
enum class Whole : std::uint32_t {
  kByHand = 0,      // built node by node
  kPriority = 1,    // captured at kHighPriority or above
  kOff = 2,         // SLUICE_GRAPH_SPACING is 0
  kIntoGraph = 3,   // captured into a graph that the program had made, such as the body of a condition
  kFromDevice = 4,  // to be launched from the device, too
  kRefused = 5,     // the driver would not have taken a gate, or the program needed them removed
};
inline constexpr int kWholeReasons = 6;
const char* whole_text(Whole reason);

inline constexpr std::int32_t kHighPriority = 100;  // what `sluice run --priority high` means

// Counters of one client; a reaper adds them to its job's. Units in the names. Written by the owner, except held_ns and
// holds, by whoever opens its gate, and stalls, by whoever drops its hold; read by all.
struct Counters {
  std::atomic<std::uint64_t> launches;       // kernels, graphs, copies and memsets submitted
  std::atomic<std::uint64_t> gated;          // of these, at most a quantum behind a gate, or while no job could hold it
  std::atomic<std::uint64_t> captured;       // of these, into a stream that was capturing (not gated)
  std::atomic<std::uint64_t> gates;          // waits enqueued
  std::atomic<std::uint64_t> held_ns;        // gate closed while work was submitted
  std::atomic<std::uint64_t> holds;          // times it was held
  std::atomic<std::uint64_t> gpu_ns;         // sampled kernel time times launches
  std::atomic<std::uint64_t> long_launches;  // launches of kernels longer than the quantum
  std::atomic<std::uint64_t> closes;         // times it closed the gates below it
  std::atomic<std::uint64_t> stalls;         // times its hold was dropped because it made no progress
  std::atomic<std::uint64_t> unknown_lookups;              // entry points newer than the shim's table, passed through
  std::atomic<std::uint64_t> graphs_gated;                 // graphs captured with gates inside
  std::atomic<std::uint64_t> preempted;                    // times it was taken off the GPU in mid-kernel
  std::atomic<std::uint64_t> graphs_whole[kWholeReasons];  // launches of graphs without, by enum Whole
};

// Where a job stands with the memory that its limit promises it.
enum class MemoryWait : std::uint32_t {
  kNone = 0,     // its command runs, or is about to: what the limit leaves it is promised
  kWaiting = 1,  // its command is not started, for want of memory
  kEnded = 2,    // its command has ended: nothing more is promised
};

struct LongKernel {
  std::atomic<std::uint64_t> launches;
  std::atomic<std::uint64_t> longest_ns;
  char name[112];  // zero-terminated; written once, before launches becomes non-zero
};

// A process with a context on this GPU. Cache lines are kept apart by who writes them.
struct alignas(128) Client {
  std::atomic<GateBits> gate;            // the GPU waits for 0; everybody changes it, by fetch_or and fetch_and
  std::atomic<std::uint64_t> closed_ns;  // when gate last left 0 (by whoever closed it)
  std::atomic<std::uint32_t> watched;    // 1: the owner has a thread that sleeps until a closer's bit comes or goes
  std::atomic<std::uint32_t> changes;    // how often that happened; the word it sleeps on

  alignas(128) std::atomic<ProcessIdentity> owner;
  std::atomic<std::uint32_t> live;    // 1 once the fields are filled in; 0 again when the process is exiting
  std::atomic<std::uint32_t> job;     // index into Board::jobs
  std::atomic<std::uint32_t> bypass;  // enum Bypass

  alignas(128) std::atomic<std::uint32_t> active;  // has submitted work that is not known to be done
  std::atomic<std::uint64_t> active_ns;            // when it last became active
  std::atomic<std::uint64_t> progress;             // grows whenever work is seen done; the owner writes it
  std::atomic<std::uint64_t> progress_ns;          // when it last grew
  std::atomic<std::uint64_t> tail_ns;              // longest piece of work between two of its gates, lately
  // The value of `progress` at which its hold was dropped (see drop_stalled), plus 1; 0: not dropped. It holds
  // nobody until `progress` has moved on.
  std::atomic<std::uint64_t> dropped_at;
  // Set by the daemon to give the jobs below their minimum share: it holds nobody until then.
  std::atomic<std::uint64_t> muted_until_ns;

  alignas(128) Counters counters;
  LongKernel long_kernels[kLongKernels];

  // Device memory of this GPU that its allocation calls hold, by reserve_memory and its kin; the owner writes it.
  alignas(128) std::atomic<std::uint64_t> memory_bytes;
};

// One command started by `sluice run`, on this GPU.
struct alignas(128) Job {
  std::atomic<ProcessIdentity> owner;  // the `sluice run`; the slot lives on while clients of the job do
  std::atomic<std::uint32_t> live;
  std::atomic<std::int32_t> priority;             // higher wins; may change while the job runs (bump Board::epoch)
  std::atomic<std::uint32_t> share;               // weight among equals, at least 1
  std::atomic<std::uint32_t> min_below_permille;  // what the jobs below it get at least, of the GPU's time
  std::atomic<std::uint32_t> gpus;                // to be gated on, if one is held; the daemon follows it
  std::atomic<std::uint32_t> mps;                 // 1: its processes are clients of an MPS daemon
  // Starts at 1. Unique in the directory, but the same on all boards of a job, and for all ranks of one program.
  std::atomic<std::uint64_t> id;
  std::atomic<std::uint64_t> ranks;  // the same for all ranks that one launcher started; 0: it is none
  std::atomic<std::int32_t> child;   // pid of the command
  std::atomic<std::uint64_t> started_ns;
  std::atomic<std::uint64_t> clients_seen;        // processes of it that took a client slot so far
  std::atomic<std::uint64_t> memory_limit_bytes;  // of this GPU, for all its processes together; 0: no limit
  std::atomic<std::uint64_t> memory_turn;         // who reserves now; see memory.cc
  std::atomic<std::uint64_t> memory_refusals;     // allocations refused because of the limit
  std::atomic<std::uint32_t> memory_told;         // 1 once somebody said who holds what
  std::atomic<std::uint32_t> waiting;             // enum MemoryWait
  char name[128];                                 // the command, shortened; written before live becomes 1
  Counters counters;                              // of clients that are gone
  LongKernel long_kernels[kLongKernels];          // likewise
};

struct Board {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t bytes;  // sizeof(Board)
  char device[64];      // "GPU-xxxxxxxx-...", zero-terminated
  char device_name[64];
  std::atomic<std::uint32_t> ready;      // 1 when the creator has filled in the above
  std::atomic<std::uint32_t> simulated;  // the device is the emulator's

  // Grows when a client joins or leaves, a priority changes or a bit may have been lost.
  alignas(128) std::atomic<std::uint32_t> epoch;
  std::atomic<std::uint64_t> occupied[kClients / 64];  // a bit a client slot: set for every live one, maybe for others
  std::atomic<ProcessIdentity> daemon;                 // the daemon that runs the policy, or 0
  std::atomic<std::uint64_t> quantum_ns;               // GPU work between two gates of a stream
  std::atomic<std::uint64_t> linger_ns;                // how long a client keeps its hold after its last work is done
  std::atomic<std::uint64_t> next_job_id;
  std::atomic<std::uint64_t> daemon_ns;  // when that daemon last looked; silent for kStallNs, it holds nobody

  Client clients[kClients];
  Job jobs[kJobs];
};

// ---- the file -------------------------------------------------------------------------------------------------

// Where the daemon of a host's group is looked for.
inline constexpr char kGroupDirectory[] = "/run/sluice";

// The runtime directory: $SLUICE_RUNTIME_DIR; else /run/sluice, if that is root's for a group which the caller is a
// member of and no daemon of the user's own runs; else /dev/shm/sluice-<uid>. Created 0700 if missing; refused unless
// it is the caller's alone or, but for the last, such a group's. `out` gets a zero-terminated path.
Status runtime_directory(char* out, std::size_t bytes);

// Path of the board of GPU `device` (its UUID text, checked for odd characters).
Status board_path(const char* device, char* out, std::size_t bytes);

// Maps the board at `path`, creating and reserving it if `create_for` is not null (the device's UUID).
// Errors: kNotFound; kFailedPrecondition when it is of another version or damaged; kResourceExhausted when /dev/shm
// is full; kPermissionDenied when it is not the caller's. The mapping lives until unmap(), page-aligned.
Result<Board*> map(const char* path, const char* create_for = nullptr, const char* device_name = "",
                   bool simulated = false);
void unmap(Board* board);

// ---- jobs and clients -----------------------------------------------------------------------------------------

struct JobSpec {
  std::int32_t priority = 50;
  std::uint32_t share = 1;
  std::uint32_t min_below_permille = 0;
  std::uint32_t gpus = 1;
  std::uint64_t id = 0;  // 0: take the board's next; another board's id for a job on several GPUs
  std::uint64_t ranks = 0;
  std::uint64_t memory_limit_bytes = 0;  // 0: no limit
  bool waiting = false;                  // its command has not started yet
  bool mps = false;                      // its processes are clients of an MPS daemon
  const char* name = "";
};
// Takes a job slot for process `owner`. Returns its index. Errors: kResourceExhausted.
Result<int> claim_job(Board* board, const JobSpec& spec, ProcessIdentity owner);
// Gives the slot back, at once or, where clients of the job have a slot, when the last one is reaped. REQUIRES: called
// by the process that claimed it.
void release_job(Board* board, int job);

// Takes a client slot for process `owner` of job `job`: one with a bit where it can, but jobs of the lowest priority in
// use leave the last kReservedClosers of these to those above them. Errors: kResourceExhausted; kNotFound when the job
// has ended.
Result<int> claim_client(Board* board, int job, ProcessIdentity owner);
inline constexpr int kReservedClosers = 24;
// The process says it is exiting: it holds nobody any more and is not gated. The slot itself goes when it is gone.
void leave(Board* board, int client);

// ---- gates ----------------------------------------------------------------------------------------------------

// Adds or removes `bits` in one client's gate, keeping closed_ns, held_ns and holds. Returns the gate's value before.
// A client that is not live is not closed.
GateBits close_gate(Board* board, int client, GateBits bits, std::uint64_t now);
GateBits open_gate(Board* board, int client, GateBits bits, std::uint64_t now);

// Whether a job above `client`'s could hold it now, one that leaves nothing to those below it by min_below_permille.
bool is_below(const Board* board, int client, std::uint64_t now);

// Sleeps until a closer's bit in the gate has come or gone since `changes` was read, or somebody calls wake_watcher, or
// `timeout_ns` is over. For the owner, who has set `watched` before it read `changes` and then the gate.
void await_change(const Client& client, std::uint32_t changes, std::uint64_t timeout_ns);
void wake_watcher(Client& client);

// Whether `client` may hold others now: it is live, has a bit, is not muted, and has made progress since its hold was
// last dropped, if it ever was.
bool may_hold(const Board* board, int client, std::uint64_t now);
// Closes the gates of all live clients whose job's priority is below `client`'s, and takes its bit away from all
// others. If it may not hold, its bit is taken away everywhere. Returns how many it holds. Not to be called by two
// threads of a process at once, nor beside its release_held; any other process may do anything meanwhile.
// What the call was based on goes to `holding`, if given.
struct Holding {
  std::uint32_t epoch = 0;
  std::uint64_t dropped_at = 0;
  bool complete = false;  // it was allowed to hold, before and after
};
int hold_below(Board* board, int client, std::uint64_t now, Holding* holding = nullptr);
// Whether bits may be missing since the call of hold_below that gave `holding`. An active client asks at each turn of
// its pump, after publishing its progress, and calls hold_below again if so; a few loads, no system call.
bool hold_again(const Board* board, int client, const Holding& holding, std::uint64_t now);
// Opens everything `client` holds, wherever its bit is.
void release_held(Board* board, int client, std::uint64_t now);

// What a held client does for itself, at least every 25 ms while its gate is not 0: clears the bits of closers that
// are dead, gone, muted or no longer of higher priority, and the daemon's when that is dead or stopped; drops the hold
// of closers whose progress has not moved for kStallNs. Returns the bits it removed. kSpareBit stays.
GateBits check_holders(Board* board, int client, std::uint64_t now);

// Calls `visit(slot)` for every client slot that may have a live client.
template <class F>
void for_each_occupied(const Board* board, F visit) {
  for (int word = 0; word < kClients / 64; ++word) {
    for (std::uint64_t bits = board->occupied[word].load(); bits != 0; bits &= bits - 1) {
      visit(word * 64 + __builtin_ctzll(bits));
    }
  }
}

// Wipes the slots of dead processes and clears their bits everywhere. Any process may call it at any time.
// Returns the number of slots freed.
int reap(Board* board, std::uint64_t now);
// The same for the next `most` owned slots from *cursor on (0 at first; it goes round), so that somebody who comes
// often need not ask each time about the life of every process.
int reap_some(Board* board, std::uint64_t now, int* cursor, int most);
// The same for the dead clients of one job.
int reap_clients(Board* board, int job, std::uint64_t now);

// ---- memory ---------------------------------------------------------------------------------------------------

// Adds `bytes` to what `client` holds, if its job then stays within its limit. False: nothing was added. Two processes
// that ask at once cannot both get the last of it. Before it refuses it reaps. At most a few microseconds, unless
// another process was stopped in the middle of this call.
bool reserve_memory(Board* board, int client, std::uint64_t bytes);
// Adds without asking: what the driver has taken already.
void add_memory(Board* board, int client, std::uint64_t bytes);
// Takes back what was added; never goes below 0.
void release_memory(Board* board, int client, std::uint64_t bytes);

// What the live clients of a job hold now, in bytes.
std::uint64_t memory_of(const Board* board, int job);
// What the running jobs of the board may still take: their limits less what they hold. Jobs that wait for memory are
// left out, and so is job `except` (-1: none) with all that share its id, a program's ranks.
std::uint64_t memory_promised(const Board* board, int except);
// Whether a live job with a smaller id than job `job` waits for memory on this board: it comes first.
bool others_wait_before(const Board* board, int job);

// ---- reading --------------------------------------------------------------------------------------------------

// A copy of a job's counters with those of its live clients added.
struct JobTotals {
  std::uint64_t launches, gated, captured, gates, held_ns, holds, gpu_ns, long_launches, closes, stalls,
      unknown_lookups;
  std::uint64_t graphs_gated, preempted;
  std::uint64_t graphs_whole[kWholeReasons];
  int clients;                 // alive now
  std::uint64_t clients_seen;  // ever
  std::uint32_t bypass;        // of any client, 0 if none
  std::uint64_t memory_bytes;  // held by allocation calls of its live clients
  std::uint64_t memory_limit_bytes;
  std::uint64_t memory_refusals;
  struct Long {
    char name[112];
    std::uint64_t launches, longest_ns;
  } long_kernels[kLongKernels];
};
JobTotals totals(const Board* board, int job, std::uint64_t now);
// Launches of graphs without gates, and the reason that most of them had; that is null if there were none.
struct WholeGraphs {
  std::uint64_t launches = 0;
  const char* reason = nullptr;
};
WholeGraphs whole_graphs(const JobTotals& totals);

// Whose job it is, as the kernel says of its `sluice run`, or of a client where that is gone. False when all are gone.
bool job_user(const Board* board, const Job& job, uid_t* user);

}  // namespace sluice::board
