// The GPUs and the driver that jobs get here: the installed ones, or the emulator's. Not thread safe (sets variables
// of this process's environment, so that the daemon it starts sees the same machine).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "environment.h"
#include "installation.h"
#include "job_request.h"
#include "job_slots.h"
#include "placement.h"
#include "sluice/base/status.h"
#include "sluice/health.h"

namespace sluice::cli {

struct GpuProcess {
  pid_t pid = 0;
  std::string uuid;
};

// The driver library of this machine: the installed one or, if asked for, the emulator's.
struct DriverChoice {
  std::string path;  // "" when there is none
  bool simulated = false;
  Status missing;  // why there is no driver
};
// Has the emulator's NVML used beside the emulator's driver (SLUICE_NVML). Errors: those of driver::open_library, where
// SLUICE_DRIVER names a library that cannot be opened.
Result<DriverChoice> choose_driver(const Installation& installation);

class Machine {
 public:
  // Errors: kUnavailable, with the reason, when there is neither a driver nor the emulator, or NVML finds no GPU.
  static Result<Machine> look(const Installation& installation);

  bool simulated() const { return simulated_; }
  // True when nobody asked for the emulator and it plays because there is no driver.
  bool substituted() const { return substituted_; }
  const std::string& driver() const { return driver_; }
  const std::vector<Candidate>& gpus() const { return gpus_; }  // job_priorities are filled in

  struct Choice {
    std::vector<std::size_t> gpus;  // positions in gpus()
    std::string why;                // "" when the user said which
  };
  // Errors: kUnavailable for a GPU that does not exist; kNotFound when CUDA_VISIBLE_DEVICES hides all of them.
  Result<Choice> choose(const JobRequest& request, const Environment& environment) const;
  // So that the next job of the same call sees this one.
  void count_job(const Choice& choice, int priority);

  // Memory of a GPU as NVML says now: in all, and free. Nothing where it does not tell.
  struct Memory {
    std::uint64_t total_bytes, free_bytes;
  };
  std::optional<Memory> memory(const std::string& uuid) const;
  // Absolute path of the installed NVML, "" if it is not known.
  std::string nvml_library() const { return nvml_->library(); }

  // What NVML says of a GPU now. Errors: kNotFound.
  Result<health::Vitals> vitals(const std::string& uuid) const { return nvml_->vitals(uuid); }
  std::string label(const std::string& uuid) const;  // "GPU 0 (NVIDIA H200)"

  // What of each GPU a job may take. Errors: kInvalidArgument when a card is too small for it.
  Result<std::vector<GpuName>> places(const JobRequest& request, const Choice& choice) const;

  // Processes with a context on any GPU now.
  std::vector<GpuProcess> processes() const;

 private:
  Result<std::size_t> find(const std::string& name) const;
  Status out_of_use(std::size_t at) const;  // the error for who wants it
  // Removes the cards that are out of use. Errors: kUnavailable when no other is left.
  Status leave_out(std::vector<std::size_t>* among) const;
  Result<Choice> choose_auto(const std::vector<std::size_t>& among, int count, int priority) const;

  std::string driver_;
  bool simulated_ = false;
  bool substituted_ = false;
  std::vector<Candidate> gpus_;
  std::shared_ptr<health::Nvml> nvml_;
};

}  // namespace sluice::cli
