// Which way of sharing suits a mix of jobs best, by what was measured. Pure functions; thread safe.
#pragma once

#include <optional>
#include <string>

#include "report.h"

namespace sluice::bench {

// Sum over the jobs of throughput divided by that alone; nullopt where a job made nothing alone.
std::optional<double> total_ratio(const Report& report, const SetupResult& setup);

struct Best {
  Setup setup = Setup::kAlone;
  bool by_throughput = false;       // else by the p99 latency alone: no other came within the bound
  double p99_ratio = 0;             // of the most important job, to alone
  double p99_ratio_bound = 0;       // up to here setups count as equal in that
  std::optional<double> low_ratio;  // mean over the jobs below of throughput to that alone
  std::optional<Setup> runner_up;   // the second by what decided
};

// First the p99 latency of the most important job. What is within the bound of the least counts as equal to it: 5 %, or
// that one's own 95 % bound where it is wider. Among equals, what the jobs below get done. nullopt when the important
// job has no latencies or there is nothing to compare.
std::optional<Best> best_setup(const Report& report);

// One sentence, "" for none.
std::string best_sentence(const Report& report);

}  // namespace sluice::bench
