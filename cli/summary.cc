#include "summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "job_request.h"
#include "sluice/base/clock.h"
#include "sluice/base/units.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

std::vector<board::JobTotals::Long> long_kernels(const board::JobTotals& totals) {
  std::vector<board::JobTotals::Long> kernels;
  for (const board::JobTotals::Long& kernel : totals.long_kernels) {
    if (kernel.launches != 0) kernels.push_back(kernel);
  }
  std::sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.launches > b.launches; });
  return kernels;
}

std::string name_of(const board::JobTotals::Long& kernel) {
  return std::string(kernel.name, strnlen(kernel.name, sizeof kernel.name));
}

// Mangled C++ names are long; what is left out is shown.
std::string shortened(const std::string& name) {
  constexpr std::size_t kShown = 48;
  return name.size() <= kShown ? name : name.substr(0, kShown) + "...";
}

std::uint64_t micros(std::uint64_t ns) { return ns / kNanosPerMicro; }

}  // namespace

std::string grouped(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string summary_line(const JobOutcome& job) {
  if (job.id == 0) return fmt::format("{}: ran without Sluice: {}", job.name, job.bypass);
  std::string line = fmt::format("job {} ({}", job.id, priority_name(job.priority));
  if (job.simulated) line += ", simulated";
  line += "): ";
  const board::JobTotals& totals = job.totals;
  if (totals.clients_seen == 0) {
    line += "no CUDA was used";
  } else {
    line +=
        fmt::format("{} of {} launches gated, held {}, GPU time {}", grouped(totals.gated), grouped(totals.launches),
                    format_duration_ns(totals.held_ns), format_duration_ns(totals.gpu_ns));
  }
  if (totals.long_launches != 0) {
    line += fmt::format("; {} launches of kernels longer than {}", grouped(totals.long_launches),
                        format_duration_ns(job.quantum_ns));
    std::string names;
    for (const board::JobTotals::Long& kernel : long_kernels(totals)) {
      names += fmt::format("{}{} x{} up to {}", names.empty() ? "" : ", ", shortened(name_of(kernel)),
                           grouped(kernel.launches), format_duration_ns(kernel.longest_ns));
    }
    if (!names.empty()) line += " (" + names + ")";
  }
  if (totals.preempted != 0)
    line += fmt::format("; taken off the GPU {} times in mid-kernel", grouped(totals.preempted));
  if (totals.graphs_gated != 0) line += fmt::format("; {} graphs captured with gates", grouped(totals.graphs_gated));
  if (const board::WholeGraphs whole = board::whole_graphs(totals); whole.launches != 0)
    line += fmt::format("; {} launches of graphs held as a whole ({})", grouped(whole.launches), whole.reason);
  if (totals.memory_refusals != 0) {
    line += fmt::format("; {} allocations refused at its limit of {}", grouped(totals.memory_refusals),
                        format_bytes(totals.memory_limit_bytes));
  }
  if (totals.stalls != 0)
    line += fmt::format("; let others go {} times because it made no progress", grouped(totals.stalls));
  if (totals.bypass != 0) {
    line += fmt::format("; not gated: {}", board::bypass_text(static_cast<board::Bypass>(totals.bypass)));
  }
  for (const std::string& process : job.unseen) line += "; without the shim: " + process;
  if (job.duration_reached) line += "; ended at its duration";
  return line;
}

json outcome_json(const JobOutcome& job) {
  json out = {{"name", job.name},
              {"priority", job.priority},
              {"share", job.share},
              {"devices", job.devices},
              {"simulated", job.simulated},
              {"mps", job.mps},
              {"exit_code", job.exit_code},
              {"signal", job.signal != 0 ? json(job.signal) : json()},
              {"duration_reached", job.duration_reached},
              {"wall_us", micros(job.wall_ns)},
              {"waited_us", micros(job.waited_ns)},
              {"unseen", job.unseen}};
  const bool managed = job.id != 0;
  const board::JobTotals& totals = job.totals;
  const auto known = [&](std::uint64_t value) { return managed ? json(value) : json(); };
  out["id"] = known(job.id);
  out["clients"] = known(totals.clients_seen);
  out["launches"] = known(totals.launches);
  out["gated"] = known(totals.gated);
  out["gated_ratio"] =
      totals.launches != 0 ? json(static_cast<double>(totals.gated) / static_cast<double>(totals.launches)) : json();
  out["captured"] = known(totals.captured);
  out["gates"] = known(totals.gates);
  out["held_us"] = known(micros(totals.held_ns));
  out["holds"] = known(totals.holds);
  out["gpu_time_us"] = known(micros(totals.gpu_ns));
  out["closes"] = known(totals.closes);
  out["stalls"] = known(totals.stalls);
  out["unknown_lookups"] = known(totals.unknown_lookups);
  const board::WholeGraphs whole = board::whole_graphs(totals);
  out["graphs_gated"] = known(totals.graphs_gated);
  out["graphs_whole"] = known(whole.launches);
  out["graphs_whole_reason"] = whole.reason != nullptr ? json(whole.reason) : json();
  out["memory_limit_bytes"] = totals.memory_limit_bytes != 0 ? json(totals.memory_limit_bytes) : json();
  out["memory_refusals"] = known(totals.memory_refusals);
  out["quantum_us"] = known(micros(job.quantum_ns));
  out["long_launches"] = known(totals.long_launches);
  out["preempted"] = known(totals.preempted);
  out["long_kernels"] = json::array();
  for (const board::JobTotals::Long& kernel : long_kernels(totals)) {
    out["long_kernels"].push_back(
        {{"name", name_of(kernel)}, {"launches", kernel.launches}, {"longest_us", micros(kernel.longest_ns)}});
  }
  if (!job.bypass.empty()) {
    out["bypass"] = job.bypass;
  } else if (totals.bypass != 0) {
    out["bypass"] = board::bypass_text(static_cast<board::Bypass>(totals.bypass));
  } else {
    out["bypass"] = nullptr;
  }
  return out;
}

}  // namespace sluice::cli
