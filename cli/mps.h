// MPS for jobs: what `sluice run --mps` finds or starts before the commands start, and what ends a client of MPS
// without harm to the others. Not thread safe.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "environment.h"
#include "job_request.h"
#include "machine.h"
#include "sluice/base/process.h"
#include "sluice/base/status.h"
#include "sluice/health.h"
#include "sluice/mps.h"

namespace sluice::cli {

// A GPU as far as MPS is concerned.
struct MpsGpu {
  std::string label;  // "GPU 0 (NVIDIA H200)"
  std::optional<health::ComputeMode> mode;
  std::optional<bool> mig;
  std::vector<pid_t> processes;  // with a context on it now
};
// Whether clients of the daemon with these servers can use the GPU. Pure. Errors: kUnavailable, with the reason.
Status mps_can_use(const MpsGpu& gpu, const std::vector<mps::Server>& servers);

// The daemon that the jobs of one `sluice run` are clients of. Without a job that asks for it, nothing happens.
class JobsMps {
 public:
  // Joins or starts it, for jobs on these GPUs. Errors: kUnavailable, as "MPS is not possible: ...": every reason.
  Status prepare(const Machine& machine, const std::vector<std::string>& uuids, const Environment& environment);
  bool used() const { return use_.has_value(); }
  // Which one it is: a sentence for the user.
  std::string line() const;
  const std::string& pipe_directory() const { return use_->pipe_directory; }
  // What makes the job's processes its clients, at the job's priority.
  void add_to(const JobRequest& request, Environment* environment) const;
  // Gives it back, and ends it where it is Sluice's own and nobody needs it any more; also one that a killed `sluice
  // run` of this user left. Errors: those of mps::quit.
  Status end();

 private:
  Status prepare_own(const Machine& machine, const std::vector<std::string>& uuids, const Environment& environment);

  std::optional<mps::Use> use_;
};

// To be called before `signal` is sent to `processes`: ends the GPU work of those that would die of it and are clients
// of MPS, idle ones too, since they may have work again by the time it arrives. One that handles the signal ends its
// work itself. Errors go to standard error: the signal must come in any case.
void terminate_mps_clients(const std::vector<ProcessIdentity>& processes, int signal);

}  // namespace sluice::cli
