// One run: some jobs started in one way, measured together for a while, and ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine.h"
#include "options.h"
#include "timeline.h"

namespace sluice::bench {

enum class Setup { kAlone, kTimeSlicing, kMps, kSluice, kSluiceMps };
// As in the report: "alone", "time_slicing", "mps", "sluice", "sluice_mps".
const char* setup_name(Setup setup);
inline bool uses_mps(Setup setup) { return setup == Setup::kMps || setup == Setup::kSluiceMps; }
inline bool uses_sluice(Setup setup) { return setup == Setup::kSluice || setup == Setup::kSluiceMps; }

struct JobRun {
  std::vector<double> latencies_us;                     // of the requests that ended inside the window
  std::optional<double> throughput_per_s;               // in the device's time
  std::optional<double> service_p50_us;                 // if the job's last line of JSON says so
  std::optional<std::uint64_t> launches, gated, gates;  // under Sluice, from its report
};

struct Run {
  std::vector<JobRun> jobs;  // in the order given
  Timeline timeline;         // under Sluice
};

// Set by a signal: measure() ends its jobs and returns kAborted.
bool interrupted();
void stop_on_signals();

// Starts `jobs` from the lowest priority to the highest, each when the one before has reported its first latency, so
// that the most important job meets the others at work. The window opens with the last one's first line, lasts
// `seconds` of the device's time, and is cut short when a job ends by itself.
// Errors: kInternal when a job fails or reports nothing at all; kAborted.
Result<Run> measure(const Options& options, const Machine& machine, Setup setup, const Mps& mps,
                    const std::vector<JobSpec>& jobs, int repeat, double seconds);

}  // namespace sluice::bench
