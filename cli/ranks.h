// Whether this `sluice run` is one of several that a launcher (mpirun, srun, torchrun) started as ranks of one program:
// they are one job. Pure but for the caller's parent process; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "environment.h"

namespace sluice::cli {

struct Ranks {
  std::uint64_t key = 0;  // the same for all ranks of the program on this machine, and for no other program's; never 0
};

// By the variables of Open MPI, PMI (MPICH, Intel MPI), Slurm and torchrun. Nothing for a program of one rank.
std::optional<Ranks> ranks_of(const Environment& environment);

}  // namespace sluice::cli
