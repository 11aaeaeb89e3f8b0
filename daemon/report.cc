#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "sluice/base/clock.h"
#include "sluice/base/user.h"
#include "stranger.h"

namespace sluice::daemon {
namespace {

using control::Json;

// What is not known is null, never 0.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

template <std::size_t N>
std::string text(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

// One job, gathered from the boards of all its GPUs.
struct JobReport {
  std::string name;
  std::int32_t priority = 0;
  std::uint32_t share = 1;
  std::vector<std::string> devices;
  std::set<pid_t> pids;
  std::optional<pid_t> run_pid;
  std::optional<std::string> user;
  std::optional<std::uint64_t> memory_bytes;
  std::uint64_t launches = 0, gated = 0, held_ns = 0, gpu_ns = 0, holds = 0, stalls = 0, long_launches = 0;
  board::JobTotals graphs = {};  // only what it has of graphs
  std::uint32_t bypass = 0;
  std::uint64_t clients_seen = 0;
  std::uint64_t allocated = 0, limit = 0;
  bool active = false, held = false, waiting = false, mps = false;
  std::set<std::uint64_t> held_by;
  std::uint64_t started_ns = 0;
};

const char* state_of(const JobReport& job) {
  if (job.waiting) return "waiting";
  if (job.held) return "held";
  if (job.active) return "running";
  return job.clients_seen == 0 ? "starting" : "idle";
}

Json to_json(std::uint64_t id, const JobReport& job, std::uint64_t now) {
  Json ratio;
  if (job.launches > 0) ratio = static_cast<double>(job.gated) / static_cast<double>(job.launches);
  const board::WholeGraphs whole = board::whole_graphs(job.graphs);
  Json bypass;
  if (job.bypass != 0) bypass = board::bypass_text(static_cast<board::Bypass>(job.bypass));
  return {{"id", id},
          {"name", job.name},
          {"state", state_of(job)},
          {"priority", job.priority},
          {"share", job.share},
          {"devices", job.devices},
          {"user", or_null(job.user)},
          {"pids", job.pids},
          {"run_pid", or_null(job.run_pid)},
          {"memory_bytes", or_null(job.memory_bytes)},
          {"memory_allocated_bytes", job.allocated},
          {"memory_limit_bytes", job.limit != 0 ? Json(job.limit) : Json()},
          {"launches", job.launches},
          {"gated", job.gated},
          {"gated_ratio", ratio},
          {"held_us", job.held_ns / kNanosPerMicro},
          {"gpu_time_us", job.gpu_ns / kNanosPerMicro},
          {"holds", job.holds},
          {"stalls", job.stalls},
          {"long_launches", job.long_launches},
          {"graphs_gated", job.graphs.graphs_gated},
          {"graphs_whole", whole.launches},
          {"graphs_whole_reason", whole.reason != nullptr ? Json(whole.reason) : Json()},
          {"bypass", bypass},
          {"mps", job.mps},
          {"held_by", job.held_by},
          {"started_us", job.started_ns != 0 && now > job.started_ns ? (now - job.started_ns) / kNanosPerMicro : 0}};
}

class Reporter {
 public:
  Reporter(const Sample& sample, std::uint64_t now) : sample_(sample), now_(now) {}

  void add(const board::Board& board) {
    const std::string uuid = text(board.device);
    std::map<std::uint32_t, std::uint64_t> ids;
    for (int i = 0; i < board::kJobs; ++i) {
      if (board.jobs[i].live.load() != 0) ids[static_cast<std::uint32_t>(i)] = add_job(board, i, uuid);
    }
    for (int i = 0; i < board::kClients; ++i) {
      const board::Client& client = board.clients[i];
      const auto id = ids.find(client.job.load());
      if (client.live.load() != 0 && id != ids.end()) add_client(board, client, jobs_[id->second], uuid);
    }
  }

  Json jobs() const {
    Json all = Json::array();
    for (const auto& [id, job] : jobs_) all.push_back(to_json(id, job, now_));
    return all;
  }

  Json unmanaged() const {
    Json all = Json::array();
    for (const auto& [uuid, processes] : sample_.processes) {
      for (const health::Process& process : processes) {
        const auto clients = clients_.find(uuid);
        if (clients != clients_.end() && clients->second.contains(process.pid)) continue;
        const Stranger stranger = look_at(process.pid);
        all.push_back({{"pid", process.pid},
                       {"name", or_null(stranger.name)},
                       {"user", or_null(stranger.user)},
                       {"device", uuid},
                       {"memory_bytes", or_null(process.memory_bytes)},
                       {"reason", stranger.reason}});
      }
    }
    return all;
  }

 private:
  std::uint64_t add_job(const board::Board& board, int index, const std::string& uuid) {
    const board::Job& job = board.jobs[index];
    const std::uint64_t id = job.id.load();
    JobReport& report = jobs_[id];
    report.name = text(job.name);
    report.priority = job.priority.load();
    report.share = job.share.load();
    if (std::find(report.devices.begin(), report.devices.end(), uuid) == report.devices.end())
      report.devices.push_back(uuid);  // ranks may share one
    const ProcessIdentity owner = job.owner.load();
    if (!report.run_pid && is_alive(owner)) report.run_pid = pid_of(owner);
    if (uid_t user = 0; !report.user && board::job_user(&board, job, &user)) report.user = name_of(user);
    const std::uint64_t started = job.started_ns.load();
    if (report.started_ns == 0 || (started != 0 && started < report.started_ns)) report.started_ns = started;
    const board::JobTotals totals = board::totals(&board, index, now_);
    report.launches += totals.launches;
    report.gated += totals.gated;
    report.held_ns += totals.held_ns;
    report.gpu_ns += totals.gpu_ns;
    report.holds += totals.holds;
    report.stalls += totals.stalls;
    report.long_launches += totals.long_launches;
    report.graphs.graphs_gated += totals.graphs_gated;
    for (int reason = 0; reason < board::kWholeReasons; ++reason)
      report.graphs.graphs_whole[reason] += totals.graphs_whole[reason];
    report.clients_seen += totals.clients_seen;
    report.allocated += totals.memory_bytes;
    report.limit += totals.memory_limit_bytes;
    if (job.waiting.load() == static_cast<std::uint32_t>(board::MemoryWait::kWaiting)) report.waiting = true;
    if (job.mps.load() != 0) report.mps = true;
    if (totals.bypass != 0) report.bypass = totals.bypass;
    return id;
  }

  void add_client(const board::Board& board, const board::Client& client, JobReport& report, const std::string& uuid) {
    const pid_t pid = pid_of(client.owner.load());
    report.pids.insert(pid);
    clients_[uuid].insert(pid);
    if (const auto memory = memory_of(uuid, pid)) report.memory_bytes = report.memory_bytes.value_or(0) + *memory;
    if (client.active.load() == 0) return;
    report.active = true;
    const board::GateBits gate = client.gate.load();
    if (gate == 0) return;
    report.held = true;
    for (int closer = 0; closer < board::kClosers; ++closer) {
      if ((gate & board::closer_bit(closer)) != 0) add_holder(board, board.clients[closer], report);
    }
    if ((gate & board::kTurnBit) == 0) return;
    // Held by its equals' turn: by those that have work and are not closed by the daemon themselves.
    const std::uint32_t own = client.job.load();
    for (const board::Client& other : board.clients) {
      const std::uint32_t index = other.job.load();
      if (other.live.load() == 0 || index >= board::kJobs || index == own || other.active.load() == 0) continue;
      if (board.jobs[index].priority.load() != report.priority || (other.gate.load() & board::kTurnBit) != 0) continue;
      add_holder(board, other, report);
    }
  }

  // Asked once a report: it may be a question to a directory service.
  const std::string& name_of(uid_t user) {
    const auto [at, is_new] = names_.try_emplace(user);
    if (is_new) at->second = user_name(user);
    return at->second;
  }

  static void add_holder(const board::Board& board, const board::Client& holder, JobReport& held) {
    const std::uint32_t index = holder.job.load();
    if (index < board::kJobs) held.held_by.insert(board.jobs[index].id.load());
  }

  std::optional<std::uint64_t> memory_of(const std::string& uuid, pid_t pid) const {
    const auto processes = sample_.processes.find(uuid);
    if (processes == sample_.processes.end()) return std::nullopt;
    for (const health::Process& process : processes->second) {
      if (process.pid == pid) return process.memory_bytes;
    }
    return std::nullopt;
  }

  const Sample& sample_;
  const std::uint64_t now_;
  std::map<std::uint64_t, JobReport> jobs_;
  std::map<std::string, std::set<pid_t>> clients_;  // by UUID
  std::map<uid_t, std::string> names_;
};

Json watts(const std::optional<unsigned>& milliwatts) { return milliwatts ? Json(*milliwatts / 1000.0) : Json(); }

Json device_json(const health::Device& device, const Json& index, bool simulated, const health::Vitals& pulse) {
  return {{"index", index},
          {"uuid", device.uuid},
          {"name", device.name},
          {"simulated", simulated},
          {"memory_total_bytes", or_null(device.memory_total_bytes)},
          {"memory_used_bytes", or_null(device.memory_used_bytes)},
          {"utilization_ratio", or_null(device.utilization_ratio)},
          {"temperature_c", or_null(pulse.temperature_c)},
          {"power_w", watts(pulse.power_mw)},
          {"power_limit_w", watts(pulse.power_limit_mw)},
          {"throttle", pulse.throttle ? Json(health::throttle::reasons(*pulse.throttle)) : Json()},
          {"lost", index.is_null() ? Json() : Json(pulse.lost || !device.error.empty())}};
}

// What is done about a card, and what is to be known before a job is started there.
void add_care(Json* device, const Cares& cares, const std::string& runtime_dir) {
  const std::string uuid = (*device)["uuid"];
  const auto at = cares.find(uuid);
  const Care care = at == cares.end() ? Care() : at->second;
  (*device)["low_jobs_ratio"] = care.low_ratio;
  (*device)["batch_hint_ratio"] = care.batch_ratio;
  (*device)["clocks_locked_mhz"] = care.clocks_mhz != 0 ? Json(care.clocks_mhz) : Json();
  (*device)["out_of_use"] = or_null(control::read_notice(runtime_dir, control::kOutOfUsePrefix + uuid));
}

Json devices_json(const Boards& boards, const Sample& sample) {
  Json devices = Json::array();
  std::set<std::string> known;
  for (const health::Device& device : sample.devices) {
    const auto pulse = sample.pulses.find(device.uuid);
    devices.push_back(device_json(device, device.index, sample.simulated,
                                  pulse == sample.pulses.end() ? health::Vitals() : pulse->second));
    known.insert(device.uuid);
  }
  for (const auto& board : boards) {
    health::Device device;
    device.uuid = text((*board)->device);
    device.name = text((*board)->device_name);
    if (known.insert(device.uuid).second)
      devices.push_back(device_json(device, Json(), (*board)->simulated.load() != 0, {}));
  }
  return devices;
}

}  // namespace

control::Json report(const Boards& boards, const Sample& sample, const Cares& cares, const DaemonFacts& facts,
                     std::uint64_t now) {
  Reporter reporter(sample, now);
  Json devices = devices_json(boards, sample);
  for (Json& device : devices) add_care(&device, cares, facts.runtime_dir);
  for (const auto& board : boards) reporter.add(*board->get());
  return {{"daemon",
           {{"pid", getpid()},
            {"version", SLUICE_VERSION},
            {"group", or_null(facts.group)},
            {"uptime_us", (now - std::min(now, facts.started_ns)) / kNanosPerMicro}}},
          {"devices", devices},
          {"jobs", reporter.jobs()},
          {"unmanaged", reporter.unmanaged()}};
}

}  // namespace sluice::daemon
