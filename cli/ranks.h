// Whether this `sluice run` is one of several that a launcher (mpirun, srun, torchrun) started as ranks of one program:
// they are one job. Pure but for the caller's parent process; thread safe.
#pragma once

#include <cstdint>

#include "environment.h"

namespace sluice::cli {

// A number that is the same for all ranks of the program on this machine, and for no other program's; 0 where this is
// no rank, or the only one. By the variables of Open MPI, PMI (MPICH, Intel MPI), Slurm and torchrun. Runs of other
// priorities are other jobs: a shell that a launcher started as a rank may start several.
std::uint64_t ranks_of(const Environment& environment, std::int32_t priority);

}  // namespace sluice::cli
