#include "ranks.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "sluice/base/process.h"

namespace sluice::cli {
namespace {

struct Launcher {
  const char* rank;                    // set in ranks only
  const char* size;                    // of the program
  const char* local_size;              // on this machine
  std::array<const char*, 2> program;  // what tells programs apart, where all are set
};

// Ordered: who starts the others stands behind them. A batch script of Slurm has all but the step.
constexpr Launcher kLaunchers[] = {
    {"LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", {"PMIX_NAMESPACE", nullptr}},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {"PMI_JOBID", nullptr}},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

int number(const Environment& environment, const char* name) {
  return std::atoi(environment.get(name).value_or("0").c_str());
}

// 0 where the machines have different numbers of ranks, as in Slurm's "1,3": which one this is it does not say.
int local_size_of(const Environment& environment, const char* name) {
  const bool differs = environment.get(name).value_or("").find(',') != std::string::npos;
  return differs ? 0 : number(environment, name);
}

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value | 1;
}

// The launcher's own names for the program, else the process that all its ranks here were started by.
std::string program_text(const Environment& environment, const Launcher& launcher, std::int32_t priority) {
  std::string text = std::string(launcher.rank) + "/" + std::to_string(geteuid()) + "/" + std::to_string(priority);
  for (const char* name : launcher.program) {
    if (name == nullptr) continue;
    const std::optional<std::string> value = environment.get(name);
    if (!value) return text + "/parent/" + std::to_string(identity_of(getppid()));
    text += "/" + *value;
  }
  return text;
}

}  // namespace

std::uint64_t ranks_of(const Environment& environment, std::int32_t priority) {
  for (const Launcher& launcher : kLaunchers) {
    if (!environment.get(launcher.rank)) continue;
    if (number(environment, launcher.size) < 2 || local_size_of(environment, launcher.local_size) == 1) continue;
    return hash(program_text(environment, launcher, priority));
  }
  return 0;
}

}  // namespace sluice::cli
