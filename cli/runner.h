// Runs jobs to their end: places them, starts them with the shim in front, forwards signals, says what happened.
// Fails open: whatever is wrong with Sluice, the commands run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job_request.h"
#include "sluice/base/clock.h"

namespace sluice::cli {

struct RunOptions {
  bool quiet = false;                                   // no summary, no notes; errors stay
  bool json = false;                                    // notes of waiting, and the summary, as JSON
  bool verbose = false;                                 // why which GPU, also where there is only one
  std::string report;                                   // file for the summary as JSON, "" for none
  bool as_list = false;                                 // the report is {"jobs": [...]}, also for one job
  std::uint64_t check_after_ns = 10 * kNanosPerSecond;  // then look for GPU contexts without the shim
};

// Returns the exit code of `sluice run`: the first of the jobs' codes that is not 0, in the order given; kExitUsage or
// kExitNoDevice when nothing was started because the request cannot be met.
int run_jobs(std::vector<JobRequest> requests, const RunOptions& options);

}  // namespace sluice::cli
