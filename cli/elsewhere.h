// Commands whose program does not run below `sluice run`: in a container (docker, podman, nerdctl), whose engine starts
// it, or on another machine (ssh, srun). Recognised by their words; pure and thread safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

struct Elsewhere {
  enum class Kind { kContainer, kMachine };
  Kind kind = Kind::kContainer;
  std::string program;  // "docker"
  // Of a container: where its image stands in the command, before which options go; 0 where that is not known for sure
  // or options would not help, and `unsure` says why.
  std::size_t image = 0;
  std::string unsure;
  bool has_gpu = false;                     // an option gives it a GPU
  bool shares_pids = false;                 // --pid=host is there
  std::optional<std::string> user;          // of --user
  std::optional<std::string> library_path;  // of -e LD_LIBRARY_PATH=
  // Of another machine: what to type instead, as far as it can be known.
  std::vector<std::string> instead;
};

// Nothing for a command that runs here. `run_words` are the words that start a job with these options on the other
// machine: "sluice run --priority low --".
std::optional<Elsewhere> elsewhere(const std::vector<std::string>& command, const std::vector<std::string>& run_words);

// What of this machine a container needs.
struct ContainerNeeds {
  std::string shim_dir;
  std::string runtime_dir;
  std::string limit_dir;     // of the NVML of jobs with a memory limit, "" for others
  std::string emulator_dir;  // "" with a real driver
  std::string mps_pipe_dir;  // of the MPS daemon that the job uses, "" for others
};
// The options to add behind "run". Values of variables that differ from job to job are left to the engine, which takes
// them from its own environment.
std::vector<std::string> container_options(const Elsewhere& command, const ContainerNeeds& needs);

// Words as one would type them into a shell.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace sluice::cli
