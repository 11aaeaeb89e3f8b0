// How long runs take, and how much memory the process takes.
#pragma once

#include <cstdint>
#include <vector>

#include "progress.h"
#include "sluice/engine.h"

namespace sluice::cli {

struct Latency {
  double p50_us = 0, p99_us = 0;
  double runs_per_s = 0;
};

// The value below or at which `percent` of all lie (nearest rank). REQUIRES: not empty, 0 < percent <= 100.
double percentile(std::vector<double> values, double percent);

// Runs untimed for a fifth of `seconds` and at least 3 times, then timed for `seconds` and at least 10 times. Errors:
// as Session::run.
Result<Latency> measure_latency(engine::Session& session, double seconds, Progress& progress);

// The most memory that was resident since this was made, less what was resident then. 0 where /proc does not tell.
class MemoryMeter {
 public:
  MemoryMeter();
  std::uint64_t peak_bytes() const;

 private:
  std::uint64_t before_;
};

}  // namespace sluice::cli
