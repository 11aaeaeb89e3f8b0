// What `sluice doctor` knows of a machine: plain data, filled in by collect.h, judged by judge.h. What could not be
// found out is nullopt, "" or empty, never 0. Not thread safe: values.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sluice/health.h"

namespace sluice::cli::doctor {

struct DriverFacts {
  bool simulated = false;                      // the emulator's, because the user asked for it
  std::string cuda_library, cuda_error;        // path of libcuda.so.1, or why there is none
  std::string nvml_library, nvml_error;        // likewise of NVML, opened and initialised
  std::string version;                         // as NVML says
  std::string module_version;                  // of the loaded kernel module
  std::string library_version;                 // of the library's file: libcuda.so.580.95.05
  std::optional<int> cuda_version;             // 1000 x major + 10 x minor
  std::optional<bool> counters_for_root_only;  // RmProfilingAdminOnly
  std::vector<std::string> forbidden_files;    // device files that this user may not open
};

struct ProcessFacts {
  pid_t pid = 0;
  std::string name, user;  // "" when it is not visible from here
  std::optional<std::uint64_t> memory_bytes;
};

struct CardFacts {
  health::Device device;
  std::optional<health::Vitals> vitals;  // none: the card does not answer at all, device.error says why
  bool processes_known = false;
  std::vector<ProcessFacts> processes;             // with a context, compute or graphics
  std::optional<unsigned> slot_width, card_width;  // PCIe lanes that the slot's port has, and the card
  std::optional<int> numa_node;
  std::set<int> near_cpus;  // of that node
};

struct CgroupFacts {
  std::optional<double> cpu_cores;                          // quota over period
  std::optional<std::uint64_t> periods, throttled_periods;  // since the group began
  std::optional<std::uint64_t> memory_limit_bytes;
  std::optional<std::uint64_t> memory_used_bytes;  // less the files that can be dropped
};

struct HostFacts {
  bool is_root = false;
  std::set<int> online_cpus, allowed_cpus;
  std::optional<std::uint64_t> shm_total_bytes, shm_free_bytes;
  CgroupFacts cgroup;
  std::optional<ProcessFacts> mps;  // its control daemon or server
};

struct SluiceFacts {
  std::string version;
  std::string runtime_error;                 // why the runtime directory cannot be used
  std::string shim;                          // path of the shim; "" when the file is not there
  std::optional<pid_t> daemon;               // of the running daemon
  std::string daemon_version, daemon_error;  // one that is there and does not answer well
  std::size_t live_jobs = 0;
  std::vector<std::string> bad_boards;  // boards that cannot be used, each a sentence
};

struct Facts {
  DriverFacts driver;
  std::vector<CardFacts> cards;
  HostFacts host;
  SluiceFacts sluice;
};

}  // namespace sluice::cli::doctor
