// Which GPUs a job gets when it asks for "auto": most free memory first, then least load, then closest together.
// A pure function over what NVML and the boards say. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::cli {

struct Candidate {
  int index = 0;  // NVML's
  std::string uuid;
  std::string name;
  std::optional<std::uint64_t> memory_total_bytes, memory_used_bytes;
  std::optional<double> utilization_ratio;
  std::optional<std::string> out_of_use;  // why no job starts there
  std::vector<int> job_priorities;        // of the jobs that Sluice runs there now
};

// Distance between two candidates (positions in the list), 0 for the same board; larger is farther apart.
using Distance = std::function<int(std::size_t, std::size_t)>;

struct Placement {
  std::vector<std::size_t> chosen;  // positions in the candidates, ascending
  std::string why;                  // one clause, such as "most free memory (5.2 GiB)"
};

// Free memory counts as equal when it is within a tenth of the card with the most: a few hundred MiB must not outweigh
// a busy card. Then fewer jobs that would compete (of the same or a higher priority), fewer jobs, lower utilisation,
// smaller sum of distances, lower indices.
// Errors: kUnavailable when there are fewer candidates than `count`.
Result<Placement> place(const std::vector<Candidate>& candidates, int count, int priority, const Distance& distance);

}  // namespace sluice::cli
