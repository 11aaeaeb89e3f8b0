#include "mps.h"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <set>
#include <system_error>

#include "output.h"
#include "processes.h"
#include "sluice/base/user.h"
#include "sluice/board.h"

namespace sluice::cli {
namespace {

constexpr int kNormalPriority = 50;

Status impossible(const std::string& why) {
  return Status::error(Code::kUnavailable, "MPS is not possible: %s", why.c_str());
}

bool serves(const std::vector<mps::Server>& servers, pid_t pid) {
  return std::any_of(servers.begin(), servers.end(), [&](const mps::Server& server) {
    return server.pid == pid || std::find(server.clients.begin(), server.clients.end(), pid) != server.clients.end();
  });
}

std::string process_text(pid_t pid) {
  std::string text = "process " + std::to_string(pid);
  uid_t user = 0;
  if (user_of(identity_of(pid), &user)) text += " (" + process_name(pid) + ", of " + user_name(user) + ")";
  return text;
}

}  // namespace

Status mps_can_use(const MpsGpu& gpu, const std::vector<mps::Server>& servers) {
  if (gpu.mig.value_or(false)) return impossible(gpu.label + " is divided by MIG");
  switch (gpu.mode.value_or(health::ComputeMode::kDefault)) {
    case health::ComputeMode::kDefault:
      return {};
    case health::ComputeMode::kProhibited:
      return impossible(gpu.label + " takes no programs: its compute mode is PROHIBITED");
    case health::ComputeMode::kExclusiveThread:
    case health::ComputeMode::kExclusiveProcess:
      break;
  }
  for (pid_t pid : gpu.processes) {
    if (!serves(servers, pid))
      return impossible(gpu.label + " is for one process at a time, and " + process_text(pid) + " has it");
  }
  return {};
}

Status JobsMps::prepare(const Machine& machine, const std::vector<std::string>& uuids, const Environment& environment) {
  const Status status = prepare_own(machine, uuids, environment);
  if (status.ok() || status.code() == Code::kUnavailable) return status;
  return impossible(status.message());
}

Status JobsMps::prepare_own(const Machine& machine, const std::vector<std::string>& uuids,
                            const Environment& environment) {
  if (machine.simulated()) {
    return impossible(machine.gpus().front().name + " is simulated and has none; leave --mps out, or use a real GPU");
  }
  char runtime_dir[PATH_MAX];
  if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok()) return status;
  Result<mps::Use> use = mps::use(runtime_dir, environment.get(mps::kPipeVariable));
  if (!use.ok()) return use.status();
  use_ = std::move(*use);
  const Result<std::vector<mps::Server>> servers = mps::servers(use_->pipe_directory);
  Status status = servers.status();
  const std::vector<GpuProcess> processes = machine.processes();
  for (std::size_t i = 0; status.ok() && i < uuids.size(); ++i) {
    MpsGpu gpu{machine.label(uuids[i]), {}, {}, {}};
    if (const Result<health::Vitals> card = machine.vitals(uuids[i]); card.ok()) {
      gpu.mode = card->compute_mode;
      gpu.mig = card->mig;
    }
    for (const GpuProcess& process : processes) {
      if (process.uuid == uuids[i]) gpu.processes.push_back(process.pid);
    }
    status = mps_can_use(gpu, *servers);
  }
  if (!status.ok()) static_cast<void>(end().ok());
  return status;
}

std::string JobsMps::line() const {
  const std::string& where = use_->pipe_directory;
  if (!use_->own) return "MPS: joined the daemon at " + where;
  return std::string("MPS: ") + (use_->started ? "started a daemon" : "joined Sluice's daemon") + " at " + where +
         "; it ends with its last job";
}

void JobsMps::add_to(const JobRequest& request, Environment* environment) const {
  if (!use_ || !request.mps) return;
  environment->set(mps::kPipeVariable, use_->pipe_directory);
  environment->set(mps::kPriorityVariable, request.priority < kNormalPriority ? "1" : "0");
  if (request.sm_percentage != 0) environment->set(mps::kPercentageVariable, std::to_string(request.sm_percentage));
}

Status JobsMps::end() {
  use_.reset();
  char runtime_dir[PATH_MAX];
  if (!board::runtime_directory(runtime_dir, sizeof runtime_dir).ok()) return {};
  return mps::end_unused(runtime_dir).status();
}

void terminate_mps_clients(const std::vector<ProcessIdentity>& processes, int signal) {
  std::set<std::string> directories;
  std::set<pid_t> dying;
  for (ProcessIdentity process : processes) {
    const pid_t pid = pid_of(process);
    // One that has overwritten its environment, for its title, is found by that of another process of the job.
    const std::optional<std::string> pipe = variable_of(pid, mps::kPipeVariable);
    std::error_code none;
    if (pipe && std::filesystem::is_directory(*pipe, none)) directories.insert(*pipe);
    if (dies_of(pid, signal)) dying.insert(pid);
  }
  if (dying.empty()) return;
  for (const std::string& directory : directories) {
    const Result<std::vector<mps::Server>> servers = mps::servers(directory);
    Status status = servers.status();
    if (status.ok()) {
      for (const mps::Server& server : *servers) {
        for (pid_t client : server.clients) {
          if (!dying.contains(client)) continue;
          if (Status one = mps::terminate_client(directory, server.pid, client); !one.ok()) status = one;
        }
      }
    }
    if (!status.ok() && status.code() != Code::kNotFound)
      say("the MPS server was not asked to end the job's work: " + std::string(status.message()));
  }
}

}  // namespace sluice::cli
