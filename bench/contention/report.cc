#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "best.h"

namespace sluice::bench {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

JobResult add_up(const JobSpec& spec, const std::vector<Run>& repeats, std::size_t index) {
  JobResult result;
  result.name = spec.name;
  result.priority = spec.priority;
  std::vector<double> services;
  for (const Run& run : repeats) {
    const JobRun& job = run.jobs[index];
    result.latencies_us.insert(result.latencies_us.end(), job.latencies_us.begin(), job.latencies_us.end());
    result.throughputs.push_back(job.throughput_per_s.value_or(0));
    if (job.service_p50_us) services.push_back(*job.service_p50_us);
    if (job.launches) result.launches = result.launches.value_or(0) + *job.launches;
    if (job.gated) result.gated = result.gated.value_or(0) + *job.gated;
    if (job.gates) result.gates = result.gates.value_or(0) + *job.gates;
  }
  std::sort(result.latencies_us.begin(), result.latencies_us.end());
  result.throughput_per_s = mean(result.throughputs);
  if (!services.empty()) result.service_p50_us = mean(services);
  if (!result.latencies_us.empty()) {
    result.p50_us = percentile(result.latencies_us, 0.50);
    result.p99_us = percentile(result.latencies_us, 0.99);
  }
  return result;
}

// The part of the GPU's time that the jobs above `priority` use when they are alone.
double busy_above(const SetupResult& alone, std::int32_t priority) {
  double busy = 0;
  for (const JobResult& job : alone.jobs) {
    auto service = job.service_p50_us ? job.service_p50_us : job.p50_us;
    if (job.priority > priority && service) busy += job.throughput_per_s * *service * 1e-6;
  }
  return busy;
}

void compare(const SetupResult& alone, SetupResult* setup) {
  for (std::size_t i = 0; i < setup->jobs.size(); ++i) {
    JobResult& job = setup->jobs[i];
    const JobResult& base = alone.jobs[i];
    if (job.p99_us && base.p99_us && *base.p99_us > 0) {
      job.p99_ratio = *job.p99_us / *base.p99_us;
      job.p99_ratio_bounds = bootstrap_ratio(job.latencies_us, base.latencies_us, 0.99);
    }
    double left = 1 - busy_above(alone, job.priority);
    if (setup->setup == Setup::kAlone) left = 1;
    if (base.throughput_per_s <= 0 || left <= 0) continue;
    job.kept_ratio = job.throughput_per_s / (base.throughput_per_s * left);
    std::vector<double> each;
    for (std::size_t r = 0; r < job.throughputs.size(); ++r) {
      if (base.throughputs[r] > 0) each.push_back(job.throughputs[r] / (base.throughputs[r] * left));
    }
    if (each.empty()) continue;
    auto [low, high] = std::minmax_element(each.begin(), each.end());
    job.kept_spread = Interval{*low, *high};
  }
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string text_us(const std::optional<double>& us) {
  if (!us) return "n/a";
  return *us < 1e3 ? fmt::format("{:.0f} us", *us) : fmt::format("{:.2f} ms", *us / 1e3);
}

nlohmann::ordered_json best_json(const Report& report) {
  const std::optional<Best> best = best_setup(report);
  if (!best) return nullptr;
  return {{"setup", setup_name(best->setup)},      {"by", best->by_throughput ? "throughput" : "p99"},
          {"p99_ratio", best->p99_ratio},          {"p99_ratio_bound", best->p99_ratio_bound},
          {"low_ratio", or_null(best->low_ratio)}, {"runner_up", setup_name(*best->runner_up)}};
}

}  // namespace

const char* setup_title(Setup setup) {
  switch (setup) {
    case Setup::kAlone:
      return "alone";
    case Setup::kTimeSlicing:
      return "time slicing";
    case Setup::kMps:
      return "MPS";
    case Setup::kSluice:
      return "Sluice";
    case Setup::kSluiceMps:
      return "Sluice and MPS";
  }
  return "";
}

std::string device_title(const Report& report) {
  if (!report.simulated) return report.device;
  return fmt::format("{}, simulated (one emulated second took {:g} real ones)", report.device, report.real_per_shown);
}

const SetupResult* Report::find(Setup setup) const {
  for (const SetupResult& result : setups) {
    if (result.setup == setup) return &result;
  }
  return nullptr;
}

Report make_report(const Options& options, const Machine& machine, double seconds, const std::vector<Setup>& setups,
                   const std::vector<std::vector<Run>>& runs) {
  Report report;
  report.device = machine.device;
  report.simulated = machine.simulated;
  report.real_per_shown = machine.real_per_shown;
  report.repeats = options.repeats;
  report.seconds = seconds;
  for (const JobSpec& job : options.jobs) {
    const std::string& program = job.command.front();
    std::string line = program.substr(program.rfind('/') + 1);
    for (std::size_t i = 1; i < job.command.size(); ++i) line += " " + job.command[i];
    report.commands.push_back(line);
  }
  for (std::size_t s = 0; s < setups.size(); ++s) {
    SetupResult& setup = report.setups.emplace_back();
    setup.setup = setups[s];
    for (std::size_t i = 0; i < options.jobs.size(); ++i) setup.jobs.push_back(add_up(options.jobs[i], runs[s], i));
    if (setups[s] == Setup::kSluice) report.timeline = runs[s].front().timeline;
  }
  const SetupResult alone = report.setups.front();
  for (SetupResult& setup : report.setups) compare(alone, &setup);
  return report;
}

nlohmann::ordered_json to_json(const Report& report) {
  nlohmann::ordered_json setups = nlohmann::ordered_json::array();
  const SetupResult* sliced = report.find(Setup::kTimeSlicing);
  for (const SetupResult& setup : report.setups) {
    nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
    for (const JobResult& job : setup.jobs) {
      auto low = [](const std::optional<Interval>& i) { return i ? std::optional(i->low) : std::nullopt; };
      auto high = [](const std::optional<Interval>& i) { return i ? std::optional(i->high) : std::nullopt; };
      jobs.push_back({{"name", job.name},
                      {"priority", job.priority},
                      {"p50_us", or_null(job.p50_us)},
                      {"p99_us", or_null(job.p99_us)},
                      {"p99_ratio", or_null(job.p99_ratio)},
                      {"p99_ratio_low95", or_null(low(job.p99_ratio_bounds))},
                      {"p99_ratio_high95", or_null(high(job.p99_ratio_bounds))},
                      {"throughput_per_s", job.throughput_per_s},
                      {"kept_ratio", or_null(job.kept_ratio)},
                      {"kept_ratio_min", or_null(low(job.kept_spread))},
                      {"kept_ratio_max", or_null(high(job.kept_spread))},
                      {"service_p50_us", or_null(job.service_p50_us)},
                      {"samples", job.latencies_us.size()},
                      {"launches", or_null(job.launches)},
                      {"gated", or_null(job.gated)},
                      {"gates", or_null(job.gates)}});
    }
    const std::optional<double> total = total_ratio(report, setup);
    const std::optional<double> sliced_total = sliced != nullptr ? total_ratio(report, *sliced) : std::nullopt;
    std::optional<double> to_sliced;
    if (total && sliced_total && *sliced_total > 0) to_sliced = *total / *sliced_total;
    setups.push_back({{"name", setup_name(setup.setup)},
                      {"total_ratio", or_null(total)},
                      {"total_to_time_slicing_ratio", or_null(to_sliced)},
                      {"jobs", jobs}});
  }
  return {{"device", report.device},
          {"simulated", report.simulated},
          {"real_per_emulated_ratio", report.simulated ? nlohmann::ordered_json(report.real_per_shown) : nullptr},
          {"repeats", report.repeats},
          {"run_seconds", report.seconds},
          {"setups", setups},
          {"best", best_json(report)}};
}

std::string table(const Report& report) {
  std::size_t width = 4;
  for (const JobResult& job : report.setups.front().jobs) width = std::max(width, job.name.size() + 2);
  std::string text = fmt::format("{}; {} x {:.2g} s a setup\n\n", device_title(report), report.repeats, report.seconds);
  text += fmt::format("{:<16}{:<{}}{:>9}{:>11}{:>11}{:>13}{:>16}{:>12}{:>8}\n", "setup", "job", width, "priority",
                      "p50", "p99", "p99 / alone", "95 %", "per s", "kept");
  for (const SetupResult& setup : report.setups) {
    for (const JobResult& job : setup.jobs) {
      std::string bounds = job.p99_ratio_bounds
                               ? fmt::format("{:.2f} - {:.2f}", job.p99_ratio_bounds->low, job.p99_ratio_bounds->high)
                               : "";
      text += fmt::format("{:<16}{:<{}}{:>9}{:>11}{:>11}{:>13}{:>16}{:>12.1f}{:>8}\n", setup_title(setup.setup),
                          job.name, width, job.priority, text_us(job.p50_us), text_us(job.p99_us),
                          job.p99_ratio ? fmt::format("{:.2f}", *job.p99_ratio) : "n/a", bounds, job.throughput_per_s,
                          job.kept_ratio ? fmt::format("{:.0f} %", *job.kept_ratio * 100) : "n/a");
    }
  }
  return text;
}

std::string verdict(const Report& report) {
  const SetupResult* sluice = report.find(Setup::kSluice);
  const SetupResult* sliced = report.find(Setup::kTimeSlicing);
  if (sluice == nullptr || sliced == nullptr) return "";
  const JobResult& high = sluice->jobs.front();
  const JobResult& high_sliced = sliced->jobs.front();
  std::string text;
  if (high.p99_ratio && high_sliced.p99_ratio) {
    text = fmt::format(
        "p99 latency of {}: {:.2f} times its own alone under Sluice (95 % bound {:.2f}), {:.2f} times by time slicing.",
        high.name, *high.p99_ratio, high.p99_ratio_bounds->high, *high_sliced.p99_ratio);
  }
  for (std::size_t i = 1; i < sluice->jobs.size(); ++i) {
    const JobResult& low = sluice->jobs[i];
    if (!low.kept_ratio) continue;
    text += fmt::format("{}{} keeps {:.0f} % of what the jobs above it leave", text.empty() ? "" : " ", low.name,
                        *low.kept_ratio * 100);
    if (sliced->jobs[i].kept_ratio)
      text += fmt::format(" ({:.0f} % by time slicing)", *sliced->jobs[i].kept_ratio * 100);
    text += ".";
  }
  if (report.simulated) text += " All of it is simulated.";
  return text;
}

}  // namespace sluice::bench
