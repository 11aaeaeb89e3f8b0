// The result of a benchmark: what the runs add up to, as JSON, as a table and as a verdict.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "machine.h"
#include "measure.h"
#include "options.h"
#include "statistics.h"

namespace sluice::bench {

// A job in one setup, over all repetitions. What could not be measured is absent, and null in the JSON.
struct JobResult {
  std::string name;
  std::int32_t priority = 0;
  std::vector<double> latencies_us;  // sorted
  std::optional<double> p50_us, p99_us;
  std::optional<double> p99_ratio;           // to the same job alone
  std::optional<Interval> p99_ratio_bounds;  // bootstrap, 95 %
  std::optional<double> service_p50_us;
  double throughput_per_s = 0;          // mean over the repetitions
  std::optional<double> kept_ratio;     // of what the jobs above leave of its throughput alone
  std::optional<Interval> kept_spread;  // smallest and largest of the repetitions
  std::vector<double> throughputs;      // one a repetition
  std::optional<std::uint64_t> launches, gated, gates;
};

struct SetupResult {
  Setup setup = Setup::kAlone;
  std::vector<JobResult> jobs;  // in falling order of priority
};

struct Report {
  std::string device;
  bool simulated = false;
  double real_per_shown = 1;
  int repeats = 0;
  double seconds = 0;               // measured in a run, in the device's time
  std::vector<SetupResult> setups;  // alone first
  Timeline timeline;                // of one run under Sluice; rows in the order of the jobs
  std::vector<std::string> commands;

  const SetupResult* find(Setup setup) const;
};

// Adds up the runs. `runs[setup][repeat]` hold all jobs in the same order as `options.jobs`; the first setup is alone.
Report make_report(const Options& options, const Machine& machine, double seconds, const std::vector<Setup>& setups,
                   const std::vector<std::vector<Run>>& runs);

nlohmann::ordered_json to_json(const Report& report);
std::string table(const Report& report);

// One or two sentences on what Sluice did for the most important job and cost the others.
std::string verdict(const Report& report);

// "alone", "time slicing", "MPS", "Sluice", "Sluice and MPS".
const char* setup_title(Setup setup);

// The heading of table and page: device, and whether it was simulated.
std::string device_title(const Report& report);

}  // namespace sluice::bench
