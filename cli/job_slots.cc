#include "job_slots.h"

#include <dirent.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <string_view>

#include "sluice/base/clock.h"
#include "sluice/control.h"

namespace sluice::cli {
namespace {

constexpr char kIdLockName[] = "job_ids.lock";

// The id of the job that the other ranks have joined already, else one more than any id that a board knows.
// REQUIRES: the lock of ids is held.
std::uint64_t id_for(const std::string& runtime_dir, std::uint64_t ranks) {
  std::uint64_t next = 1;
  const Boards boards = Boards::open_all(runtime_dir);
  for (const board::Board* board : boards.all()) {
    next = std::max(next, board->next_job_id.load(std::memory_order_relaxed));
    for (const board::Job& job : board->jobs) {
      if (job.owner.load() == 0) continue;
      if (ranks != 0 && job.ranks.load() == ranks && job.live.load() != 0) return job.id.load();
      next = std::max(next, job.id.load() + 1);
    }
  }
  return next;
}

void add_long_kernels(const board::JobTotals& from, board::JobTotals* to) {
  for (const board::JobTotals::Long& kernel : from.long_kernels) {
    if (kernel.launches == 0) continue;
    for (board::JobTotals::Long& place : to->long_kernels) {
      if (place.launches != 0 && std::strcmp(place.name, kernel.name) != 0) continue;
      std::memcpy(place.name, kernel.name, sizeof place.name);
      place.launches += kernel.launches;
      place.longest_ns = std::max(place.longest_ns, kernel.longest_ns);
      break;
    }
  }
}

}  // namespace

JobSlots& JobSlots::operator=(JobSlots&& other) noexcept {
  if (this != &other) {
    release();
    slots_ = std::move(other.slots_);
    other.slots_.clear();
    id_ = other.id_;
  }
  return *this;
}

JobSlots::~JobSlots() { release(); }

void JobSlots::release() {
  for (const Slot& slot : slots_) {
    board::reap_clients(slot.board, slot.job, now_ns());  // those that are gone would keep the slot
    board::release_job(slot.board, slot.job);
    board::unmap(slot.board);
  }
  slots_.clear();
}

Result<JobSlots> JobSlots::claim(const std::string& runtime_dir, const JobRequest& request,
                                 const std::vector<GpuName>& gpus, bool simulated) {
  if (runtime_dir.find_first_of(",=") != std::string::npos) {
    return Status::error(Code::kInvalidArgument, "the runtime directory %.120s has a comma or an = in its name",
                         runtime_dir.c_str());
  }
  // Ids are dealt out one at a time; the lock goes with a process that dies.
  Result<control::FileLock> lock = control::FileLock::acquire(runtime_dir + "/" + kIdLockName,
                                                              control::FileLock::Mode::kExclusive, 2 * kNanosPerSecond);
  if (!lock.ok()) return lock.status();

  JobSlots result;
  result.id_ = id_for(runtime_dir, request.ranks);
  board::JobSpec spec;
  spec.priority = request.priority;
  spec.share = request.share;
  spec.min_below_permille = request.min_below_permille;
  spec.gpus = static_cast<std::uint32_t>(gpus.size());
  spec.id = result.id_;
  spec.ranks = request.ranks;
  spec.waiting = request.wait;
  spec.mps = request.mps;
  spec.name = request.name.c_str();
  for (const GpuName& gpu : gpus) {
    char path[PATH_MAX];
    if (Status status = board::board_path(gpu.uuid.c_str(), path, sizeof path); !status.ok()) return status;
    Result<board::Board*> board = board::map(path, gpu.uuid.c_str(), gpu.name.c_str(), simulated);
    if (!board.ok()) return board.status();
    spec.memory_limit_bytes = gpu.memory_limit_bytes;
    Result<int> job = board::claim_job(*board, spec, own_identity());
    if (!job.ok()) {
      board::unmap(*board);
      return job.status();
    }
    result.slots_.push_back({*board, *job, path, gpu.uuid});
    if (request.linger_ns) (*board)->linger_ns.store(*request.linger_ns);
  }
  lock->remove_file();
  return result;
}

void JobSlots::set_child(pid_t pid) {
  for (const Slot& slot : slots_) slot.board->jobs[slot.job].child.store(pid);
}

std::vector<MemoryNeed> JobSlots::needs(
    const std::function<std::optional<std::uint64_t>(const std::string&)>& free_bytes) const {
  std::vector<MemoryNeed> result;
  for (const Slot& slot : slots_) {
    board::reap(slot.board, now_ns());
    MemoryNeed need;
    need.uuid = slot.uuid;
    need.needed_bytes = slot.board->jobs[slot.job].memory_limit_bytes.load();
    // In this order: who was ahead and starts meanwhile has its limit promised by then.
    need.ahead = board::others_wait_before(slot.board, slot.job);
    need.promised_bytes = board::memory_promised(slot.board, slot.job);
    if (const std::optional<std::uint64_t> free = free_bytes(slot.uuid)) {
      need.free_bytes = *free;
    } else {
      need.free_bytes = need.needed_bytes + need.promised_bytes;
    }
    result.push_back(std::move(need));
  }
  return result;
}

void JobSlots::end_wait() {
  for (const Slot& slot : slots_) slot.board->jobs[slot.job].waiting.store(0);
}

void JobSlots::end_promise() {
  for (const Slot& slot : slots_)
    slot.board->jobs[slot.job].waiting.store(static_cast<std::uint32_t>(board::MemoryWait::kEnded));
}

std::string JobSlots::boards_variable() const {
  std::string text;
  for (const Slot& slot : slots_) {
    text += (text.empty() ? "" : ",") + slot.uuid + "=" + slot.path + ":" + std::to_string(slot.job);
  }
  return text;
}

std::vector<std::string> JobSlots::uuids() const {
  std::vector<std::string> result;
  for (const Slot& slot : slots_) result.push_back(slot.uuid);
  return result;
}

board::JobTotals JobSlots::totals() const {
  board::JobTotals sum{};
  const std::uint64_t now = now_ns();
  for (const Slot& slot : slots_) {
    board::reap_clients(slot.board, slot.job, now);
    const board::JobTotals one = board::totals(slot.board, slot.job, now);
    sum.launches += one.launches;
    sum.gated += one.gated;
    sum.captured += one.captured;
    sum.gates += one.gates;
    sum.held_ns += one.held_ns;
    sum.holds += one.holds;
    sum.gpu_ns += one.gpu_ns;
    sum.long_launches += one.long_launches;
    sum.closes += one.closes;
    sum.stalls += one.stalls;
    sum.unknown_lookups += one.unknown_lookups;
    sum.graphs_gated += one.graphs_gated;
    sum.preempted += one.preempted;
    for (int reason = 0; reason < board::kWholeReasons; ++reason) sum.graphs_whole[reason] += one.graphs_whole[reason];
    sum.memory_bytes += one.memory_bytes;
    sum.memory_limit_bytes += one.memory_limit_bytes;
    sum.memory_refusals += one.memory_refusals;
    sum.clients += one.clients;
    sum.clients_seen += one.clients_seen;
    if (sum.bypass == 0) sum.bypass = one.bypass;
    add_long_kernels(one, &sum);
  }
  return sum;
}

std::vector<pid_t> JobSlots::client_pids() const {
  std::vector<pid_t> pids;
  for (const Slot& slot : slots_) {
    for (const board::Client& client : slot.board->clients) {
      const ProcessIdentity owner = client.owner.load();
      if (owner != 0 && client.live.load() != 0 && client.job.load() == static_cast<std::uint32_t>(slot.job)) {
        pids.push_back(pid_of(owner));
      }
    }
  }
  return pids;
}

std::uint64_t JobSlots::quantum_ns() const {
  return slots_.empty() ? board::kDefaultQuantumNs : slots_.front().board->quantum_ns.load();
}

Boards Boards::open_all(const std::string& runtime_dir) {
  Boards result;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(runtime_dir.c_str()), &closedir);
  if (folder == nullptr) return result;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    constexpr std::string_view kEnding = ".board";
    if (name.size() <= kEnding.size() || name.substr(name.size() - kEnding.size()) != kEnding || name[0] == '.')
      continue;
    const std::string path = runtime_dir + "/" + entry->d_name;
    Result<board::Board*> board = board::map(path.c_str());
    if (board.ok()) {
      result.boards_.push_back(*board);
    } else if (board.status().code() != Code::kNotFound) {
      result.unusable_.emplace_back(board.status().message());
    }
  }
  return result;
}

Boards::~Boards() {
  for (board::Board* board : boards_) board::unmap(board);
}

std::vector<int> job_priorities(const board::Board& board) {
  std::vector<int> result;
  for (const board::Job& job : board.jobs) {
    if (job.live.load() == 0 || job.owner.load() == 0) continue;
    const auto index = static_cast<std::uint32_t>(&job - board.jobs);
    const bool runs = process_exists(job.owner.load()) ||
                      std::any_of(std::begin(board.clients), std::end(board.clients), [&](const board::Client& client) {
                        return client.job.load() == index && process_exists(client.owner.load());
                      });
    if (runs) result.push_back(job.priority.load());
  }
  return result;
}

std::vector<BoardJob> live_jobs(const board::Board& board) {
  std::vector<BoardJob> result;
  for (std::uint32_t i = 0; i < board::kJobs; ++i) {
    const board::Job& job = board.jobs[i];
    const ProcessIdentity owner = job.owner.load();
    if (owner == 0 || job.live.load() == 0) continue;
    BoardJob found;
    found.id = job.id.load();
    found.name.assign(job.name, strnlen(job.name, sizeof job.name));
    found.priority = job.priority.load();
    found.run = is_alive(owner) ? owner : 0;
    found.child = job.child.load();
    found.started_ns = job.started_ns.load();
    for (const board::Client& client : board.clients) {
      const ProcessIdentity process = client.owner.load();
      if (client.job.load() == i && client.live.load() != 0 && is_alive(process)) found.clients.push_back(process);
    }
    if (uid_t user = 0; board::job_user(&board, job, &user)) found.user = user;
    if (found.run != 0 || !found.clients.empty()) result.push_back(std::move(found));
  }
  return result;
}

}  // namespace sluice::cli
