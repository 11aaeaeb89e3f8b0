// A job's places on the boards of its GPUs, taken together and given back together. Not thread safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "job_request.h"
#include "sluice/base/status.h"
#include "sluice/board.h"

namespace sluice::cli {

struct GpuName {
  std::string uuid;
  std::string name;
  std::uint64_t memory_limit_bytes = 0;  // 0: none
};

// What a job that waits for memory finds on one of its GPUs.
struct MemoryNeed {
  std::string uuid;
  std::uint64_t needed_bytes = 0;
  std::uint64_t free_bytes = 0;      // as NVML says
  std::uint64_t promised_bytes = 0;  // of these, to running jobs by their limits
  bool ahead = false;                // another job waits longer
  bool met() const { return !ahead && needed_bytes <= free_bytes && promised_bytes <= free_bytes - needed_bytes; }
};

class JobSlots {
 public:
  JobSlots() = default;
  JobSlots(const JobSlots&) = delete;
  JobSlots& operator=(const JobSlots&) = delete;
  JobSlots(JobSlots&& other) noexcept { *this = std::move(other); }
  JobSlots& operator=(JobSlots&& other) noexcept;
  // Releases the slots; one whose job still has processes stays until they are gone.
  ~JobSlots();

  // Claims a slot on each GPU's board for this process, under one id that no other job has; ranks of one program share
  // it. Errors: those of board::map and board::claim_job; then nothing is kept.
  static Result<JobSlots> claim(const std::string& runtime_dir, const JobRequest& request,
                                const std::vector<GpuName>& gpus, bool simulated);

  bool empty() const { return slots_.empty(); }
  std::uint64_t id() const { return id_; }
  void set_child(pid_t pid);

  // A job that was claimed to wait: what there is on each of its GPUs. Reaps first. `free_bytes` tells what NVML says
  // of a GPU; where that is nothing, the need counts as met.
  std::vector<MemoryNeed> needs(
      const std::function<std::optional<std::uint64_t>(const std::string&)>& free_bytes) const;
  // From now on its limits are promised to it, and the next one may come.
  void end_wait();
  // Its command has ended: others may have what its limit left.
  void end_promise();

  // "UUID=path:job,...", as SLUICE_BOARDS has it.
  std::string boards_variable() const;
  std::vector<std::string> uuids() const;

  // Sums over the GPUs. Reaps first, so that processes which are gone are counted in.
  board::JobTotals totals() const;
  // Processes of the job that hold a slot as a client now.
  std::vector<pid_t> client_pids() const;
  std::uint64_t quantum_ns() const;

 private:
  struct Slot {
    board::Board* board;
    int job;
    std::string path;
    std::string uuid;
  };
  void release();

  std::vector<Slot> slots_;
  std::uint64_t id_ = 0;
};

// The boards that exist in a runtime directory. Of one that cannot be used there is only the reason.
class Boards {
 public:
  static Boards open_all(const std::string& runtime_dir);
  Boards() = default;
  Boards(const Boards&) = delete;
  Boards& operator=(const Boards&) = delete;
  Boards(Boards&& other) noexcept : boards_(std::move(other.boards_)), unusable_(std::move(other.unusable_)) {
    other.boards_.clear();
  }
  ~Boards();

  const std::vector<board::Board*>& all() const { return boards_; }
  const std::vector<std::string>& unusable() const { return unusable_; }  // a sentence each

 private:
  std::vector<board::Board*> boards_;
  std::vector<std::string> unusable_;
};

// A job as one board has it.
struct BoardJob {
  std::uint64_t id = 0;
  std::string name;
  int priority = 0;
  ProcessIdentity run = 0;                  // the `sluice run`, if it is alive
  std::vector<ProcessIdentity> other_runs;  // those of its other ranks, where it has several
  pid_t child = 0;                          // the command
  std::vector<ProcessIdentity> clients;
  std::uint64_t started_ns = 0;
  std::optional<uid_t> user;  // whose it is
};
// Priorities of the jobs on a board, by the cheap look of process_exists(): one that just died may still be among them.
std::vector<int> job_priorities(const board::Board& board);
// The live jobs of one board: those with a `sluice run` or a client that is alive.
std::vector<BoardJob> live_jobs(const board::Board& board);

}  // namespace sluice::cli
