#include "status_view.h"

#include <fmt/format.h>

#include <climits>

#include "installation.h"
#include "job_request.h"
#include "job_slots.h"
#include "machine.h"
#include "output.h"
#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "status_text.h"
#include "summary.h"

namespace sluice::cli {
namespace {

using nlohmann::json;
using namespace shown;

bool any_live_job(const std::string& runtime_dir) {
  const Boards boards = Boards::open_all(runtime_dir);
  for (const board::Board* board : boards.all()) {
    if (!live_jobs(*board).empty()) return true;
  }
  return false;
}

// Of the limit, where there is one.
std::string allocated(const json& job) {
  const std::string held = bytes(at(job, "memory_allocated_bytes"));
  const json& limit = at(job, "memory_limit_bytes");
  return limit.is_number_unsigned() ? held + " of " + bytes(limit) : held;
}

std::string note(const json& job) {
  const json& bypass = at(job, "bypass");
  std::string result = at(job, "mps") == true ? "MPS" : "";
  if (bypass.is_string()) result += (result.empty() ? "" : "; ") + ("not gated: " + bypass.get<std::string>());
  return result;
}

// The growth of a counter; nothing where it is unknown or went backwards (a job of the same id, restarted).
std::optional<double> growth(const json& before, const json& after, const char* key) {
  const json& a = at(before, key);
  const json& b = at(after, key);
  if (!a.is_number() || !b.is_number() || b < a) return std::nullopt;
  return b.get<double>() - a.get<double>();
}

}  // namespace

Result<json> fetch_status() {
  const json nothing = {
      {"daemon", nullptr}, {"devices", json::array()}, {"jobs", json::array()}, {"unmanaged", json::array()}};
  char runtime_dir[PATH_MAX];
  if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok()) return status;
  Result<json> reply = control::request(runtime_dir, {{"op", "status"}});
  if (reply.ok() || reply.status().code() != Code::kUnavailable) return reply;
  if (!any_live_job(runtime_dir)) return nothing;
  const Installation installation = find_installation();
  if (Result<Machine> machine = Machine::look(installation); !machine.ok()) {
    // The daemon says less about the devices then; the jobs are on the boards.
  }
  control::DaemonStart start;
  start.runtime_dir = runtime_dir;
  start.program = installation.daemon;
  if (Result<json> daemon = control::ensure_daemon(start); !daemon.ok()) {
    // Without a daemon, not without a device: that has an exit code of its own.
    return Status::error(Code::kFailedPrecondition, "%s", daemon.status().message());
  }
  return control::request(runtime_dir, {{"op", "status"}});
}

std::string jobs_table(const json& status) {
  const json& jobs = list_at(status, "jobs");
  if (jobs.empty()) return "no jobs\n";
  using Align = Table::Align;
  const bool rates = jobs.front().contains("launches_per_s");
  const bool of_several = at(at(status, "daemon"), "group").is_string();
  std::vector<std::pair<std::string, Align>> columns = {
      {"JOB", Align::kRight},      {"NAME", Align::kLeft},   {"PRIORITY", Align::kLeft}, {"SHARE", Align::kRight},
      {"GPU", Align::kLeft},       {"STATE", Align::kLeft},  {"MEMORY", Align::kRight},  {"ALLOCATED", Align::kRight},
      {"LAUNCHES", Align::kRight}, {"GATED", Align::kRight}, {"HELD", Align::kRight},    {"GPU TIME", Align::kRight},
      {"AGE", Align::kRight}};
  if (rates) {
    columns.emplace_back("LAUNCHES/S", Align::kRight);
    columns.emplace_back("GPU", Align::kRight);
  }
  if (of_several) columns.insert(columns.begin() + 2, {"USER", Align::kLeft});
  columns.emplace_back("NOTE", Align::kLeft);
  Table table(columns);
  for (const json& job : jobs) {
    const json& priority = at(job, "priority");
    std::vector<std::string> row = {whole(at(job, "id")),
                                    text(at(job, "name")),
                                    priority.is_number_integer() ? priority_name(priority.get<int>()) : kUnknown,
                                    whole(at(job, "share")),
                                    gpus(status, job),
                                    state(job),
                                    bytes(at(job, "memory_bytes")),
                                    allocated(job),
                                    count(at(job, "launches")),
                                    percent(at(job, "gated_ratio")),
                                    duration(at(job, "held_us")),
                                    duration(at(job, "gpu_time_us")),
                                    duration(at(job, "started_us"))};
    if (rates) {
      const json& per_second = at(job, "launches_per_s");
      row.push_back(per_second.is_number() ? grouped(static_cast<std::uint64_t>(per_second.get<double>())) : kUnknown);
      row.push_back(percent(at(job, "gpu_share_ratio")));
    }
    if (of_several) row.insert(row.begin() + 2, text(at(job, "user")));
    row.push_back(note(job));
    table.add(std::move(row));
  }
  return table.text();
}

std::string devices_table(const json& status) {
  const json& devices = list_at(status, "devices");
  if (devices.empty()) return "";
  using Align = Table::Align;
  Table table({{"GPU", Align::kRight},
               {"NAME", Align::kLeft},
               {"BUSY", Align::kRight},
               {"MEMORY", Align::kRight},
               {"OF", Align::kRight},
               {"", Align::kLeft}});
  for (const json& device : devices) {
    table.add({whole(at(device, "index")), text(at(device, "name")), percent(at(device, "utilization_ratio")),
               bytes(at(device, "memory_used_bytes")), bytes(at(device, "memory_total_bytes")), remarks(device)});
  }
  return table.text();
}

std::string unmanaged_table(const json& status) {
  const json& processes = list_at(status, "unmanaged");
  if (processes.empty()) return "";
  using Align = Table::Align;
  Table table({{"UNMANAGED", Align::kRight},
               {"NAME", Align::kLeft},
               {"USER", Align::kLeft},
               {"MEMORY", Align::kRight},
               {"REASON", Align::kLeft}});
  for (const json& process : processes) {
    table.add({whole(at(process, "pid")), text(at(process, "name")), text(at(process, "user")),
               bytes(at(process, "memory_bytes")), text(at(process, "reason"))});
  }
  return table.text();
}

void add_rates(const json& before, std::uint64_t elapsed_ns, json* after) {
  if (!after->is_object() || !at(*after, "jobs").is_array()) return;
  const double seconds = static_cast<double>(elapsed_ns) / static_cast<double>(kNanosPerSecond);
  for (json& job : (*after)["jobs"]) {
    if (!job.is_object()) continue;
    const json* earlier = nullptr;
    for (const json& other : list_at(before, "jobs")) {
      if (at(other, "id") == at(job, "id")) earlier = &other;
    }
    const auto rate = [&](const char* key, double unit) {
      const std::optional<double> grown = earlier != nullptr && seconds > 0 ? growth(*earlier, job, key) : std::nullopt;
      return grown ? json(*grown * unit / seconds) : json();
    };
    job["launches_per_s"] = rate("launches", 1);
    job["gpu_share_ratio"] = rate("gpu_time_us", 1e-6);
    job["held_ratio"] = rate("held_us", 1e-6);
  }
}

}  // namespace sluice::cli
