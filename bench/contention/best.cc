#include "best.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace sluice::bench {
namespace {

constexpr double kSame = 1.05;  // closer p99 latencies are no reason to choose

struct Contender {
  Setup setup;
  const JobResult* high;
  std::optional<double> low_ratio;
};

std::optional<double> to_alone(const Report& report, const SetupResult& setup, std::size_t job) {
  const double alone = report.setups.front().jobs[job].throughput_per_s;
  return alone > 0 ? std::optional(setup.jobs[job].throughput_per_s / alone) : std::nullopt;
}

std::vector<Contender> contenders(const Report& report) {
  std::vector<Contender> all;
  for (const SetupResult& setup : report.setups) {
    if (setup.setup == Setup::kAlone || !setup.jobs.front().p99_ratio) continue;
    Contender contender{setup.setup, &setup.jobs.front(), std::nullopt};
    double sum = 0;
    int counted = 0;
    for (std::size_t i = 1; i < setup.jobs.size(); ++i) {
      const std::optional<double> ratio = to_alone(report, setup, i);
      sum += ratio.value_or(0);
      counted += ratio ? 1 : 0;
    }
    if (counted > 0) contender.low_ratio = sum / counted;
    all.push_back(contender);
  }
  return all;
}

const Contender* of(const std::vector<Contender>& all, Setup setup) {
  for (const Contender& one : all) {
    if (one.setup == setup) return &one;
  }
  return nullptr;
}

}  // namespace

std::optional<double> total_ratio(const Report& report, const SetupResult& setup) {
  double sum = 0;
  for (std::size_t i = 0; i < setup.jobs.size(); ++i) {
    const std::optional<double> ratio = to_alone(report, setup, i);
    if (!ratio) return std::nullopt;
    sum += *ratio;
  }
  return sum;
}

std::optional<Best> best_setup(const Report& report) {
  std::vector<Contender> all = contenders(report);
  if (all.size() < 2) return std::nullopt;
  std::stable_sort(all.begin(), all.end(),
                   [](const Contender& a, const Contender& b) { return *a.high->p99_ratio < *b.high->p99_ratio; });
  Best best;
  best.p99_ratio_bound = *all.front().high->p99_ratio * kSame;
  if (all.front().high->p99_ratio_bounds)
    best.p99_ratio_bound = std::max(best.p99_ratio_bound, all.front().high->p99_ratio_bounds->high);
  const auto equals_end = std::find_if(
      all.begin(), all.end(), [&](const Contender& one) { return *one.high->p99_ratio > best.p99_ratio_bound; });
  best.by_throughput = equals_end - all.begin() > 1;
  std::stable_sort(all.begin(), equals_end,
                   [](const Contender& a, const Contender& b) { return a.low_ratio > b.low_ratio; });
  best.setup = all[0].setup;
  best.p99_ratio = *all[0].high->p99_ratio;
  best.low_ratio = all[0].low_ratio;
  best.runner_up = all[1].setup;
  return best;
}

std::string best_sentence(const Report& report) {
  const std::optional<Best> best = best_setup(report);
  if (!best) return "";
  const std::vector<Contender> all = contenders(report);
  const Contender& other = *of(all, *best->runner_up);
  const std::string& high = other.high->name;
  const char* simulated = report.simulated ? " Simulated." : "";
  if (!best->by_throughput) {
    return fmt::format("Best for this mix: {}, by the p99 latency of {}, {:.2f} times alone; next {}, {:.2f} times.{}",
                       setup_title(best->setup), high, best->p99_ratio, setup_title(other.setup),
                       *other.high->p99_ratio, simulated);
  }
  const auto percent = [](const std::optional<double>& ratio) {
    return ratio ? fmt::format("{:.0f} %", *ratio * 100) : "n/a";
  };
  return fmt::format(
      "Best for this mix: {}, by what the jobs below get done, {} of alone; next {}, {}. The p99 latency of {} is the "
      "same for both, {:.2f} and {:.2f} times alone: the bound is {:.2f}.{}",
      setup_title(best->setup), percent(best->low_ratio), setup_title(other.setup), percent(other.low_ratio), high,
      best->p99_ratio, *other.high->p99_ratio, best->p99_ratio_bound, simulated);
}

}  // namespace sluice::bench
