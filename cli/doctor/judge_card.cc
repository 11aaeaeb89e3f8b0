// Findings about one card that answers.
#include <fmt/format.h>

#include <algorithm>

#include "judge.h"

namespace sluice::cli::doctor {
namespace {

using health::ComputeMode;
using health::Vitals;
namespace throttle = health::throttle;

constexpr unsigned kNearLimitC = 5;       // so near to the hardware's slowdown that a warm day is enough
constexpr double kFarUnderDefault = 0.8;  // a power limit below this part of the default was hardly meant
constexpr unsigned kAtWorkState = 2;      // P0 to P2: not in a power saving state, in which the link is slow by intent
constexpr double kNanosPerSecond = 1e9;

bool at_work(const CardFacts& card) {
  return card.vitals->performance_state.value_or(~0u) <= kAtWorkState && card.device.utilization_ratio.value_or(0) > 0;
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

double watts(unsigned milliwatts) { return milliwatts / 1000.0; }

}  // namespace

double pcie_bytes_per_lane(unsigned generation) {
  constexpr double kRates[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  return generation < std::size(kRates) ? kRates[generation] : 0;
}

void judge_bus(const CardFacts& card, const HostFacts& host, Findings* findings) {
  const Vitals& v = *card.vitals;
  const int gpu = card.device.index;
  if (v.pcie_width && v.pcie_width_max && *v.pcie_width > 0 && *v.pcie_width < *v.pcie_width_max) {
    findings->add("pcie-width", Severity::kWarning, gpu,
                  fmt::format("{} of {} PCIe lanes are in use", *v.pcie_width, *v.pcie_width_max),
                  {{"lanes", *v.pcie_width}, {"lanes_max", *v.pcie_width_max}});
  }
  if (v.pcie_generation && v.pcie_generation_max && *v.pcie_generation > 0 &&
      *v.pcie_generation < *v.pcie_generation_max && at_work(card)) {
    const double now = pcie_bytes_per_lane(*v.pcie_generation), best = pcie_bytes_per_lane(*v.pcie_generation_max);
    const unsigned lanes = v.pcie_width.value_or(1);
    findings->add("pcie-generation", Severity::kWarning, gpu,
                  fmt::format("at work the link runs as PCIe {} of {}: {:.1f} of {:.1f} GB/s", *v.pcie_generation,
                              *v.pcie_generation_max, now * lanes / 1e9, best * lanes / 1e9),
                  {{"generation", *v.pcie_generation},
                   {"generation_max", *v.pcie_generation_max},
                   {"bytes_per_s", now * lanes},
                   {"max_bytes_per_s", best * lanes}});
  }
  if (card.slot_width && card.card_width && *card.slot_width < *card.card_width) {
    findings->add("pcie-slot", Severity::kNote, gpu,
                  fmt::format("the slot has {} PCIe lanes, the card {}", *card.slot_width, *card.card_width),
                  {{"slot_lanes", *card.slot_width}, {"card_lanes", *card.card_width}});
  } else if (v.pcie_generation_max && v.pcie_generation_card && *v.pcie_generation_max < *v.pcie_generation_card) {
    findings->add("pcie-slot", Severity::kNote, gpu,
                  fmt::format("the slot does PCIe {}, the card {}", *v.pcie_generation_max, *v.pcie_generation_card),
                  {{"slot_generation", *v.pcie_generation_max}, {"card_generation", *v.pcie_generation_card}});
  }
  const auto is_allowed = [&](int cpu) { return host.allowed_cpus.contains(cpu); };
  if (card.numa_node && *card.numa_node >= 0 && !card.near_cpus.empty() && !host.allowed_cpus.empty() &&
      std::none_of(card.near_cpus.begin(), card.near_cpus.end(), is_allowed)) {
    findings->add(
        "numa-away", Severity::kWarning, gpu,
        fmt::format("the card is at NUMA node {}, and none of the processors allowed here is", *card.numa_node),
        {{"numa_node", *card.numa_node}});
  }
}

void judge_clocks(const CardFacts& card, Findings* findings) {
  const Vitals& v = *card.vitals;
  const int gpu = card.device.index;
  const std::uint64_t bits = v.throttle.value_or(0);
  std::vector<std::pair<std::string, double>> clocks;
  std::string at;
  if (v.sm_clock_mhz && v.sm_clock_max_mhz) {
    at = fmt::format("; {} of {} MHz", *v.sm_clock_mhz, *v.sm_clock_max_mhz);
    clocks = {{"sm_clock_mhz", *v.sm_clock_mhz}, {"sm_clock_max_mhz", *v.sm_clock_max_mhz}};
  }
  const auto held_down = [&](const char* id, Severity severity, std::uint64_t mask) {
    if ((bits & mask) == 0) return;
    findings->add(id, severity, gpu, "clocks are held down now: " + joined(throttle::reasons(bits & mask)) + at,
                  clocks);
  };
  held_down("throttle-hardware", Severity::kCritical, throttle::kFaults);
  held_down("throttle-heat", Severity::kWarning, throttle::kHeat);
  held_down("throttle-power", Severity::kNote, throttle::kPowerCap);
  held_down("clocks-set", Severity::kNote, throttle::kUserClocks | throttle::kSyncBoost | throttle::kDisplayClocks);

  const std::pair<const char*, std::optional<std::uint64_t>> counters[] = {{"heat", v.thermal_violation_ns},
                                                                           {"board limit", v.board_violation_ns},
                                                                           {"reliability", v.reliability_violation_ns}};
  std::string before;
  double seconds = 0;
  for (const auto& [name, ns] : counters) {
    if (ns.value_or(0) < kNanosPerSecond) continue;
    seconds += static_cast<double>(*ns) / kNanosPerSecond;
    before +=
        fmt::format("{}{} {:.0f} s", before.empty() ? "" : ", ", name, static_cast<double>(*ns) / kNanosPerSecond);
  }
  if (!before.empty()) {
    findings->add("throttled-before", Severity::kNote, gpu,
                  "since the driver was loaded clocks were held down by " + before, {{"throttled_s", seconds}});
  }

  if (v.temperature_c && v.slowdown_c && *v.temperature_c + kNearLimitC >= *v.slowdown_c) {
    findings->add("temperature", *v.temperature_c >= *v.slowdown_c ? Severity::kCritical : Severity::kWarning, gpu,
                  fmt::format("{} C; the hardware slows down at {} C", *v.temperature_c, *v.slowdown_c),
                  {{"temperature_c", *v.temperature_c}, {"slowdown_c", *v.slowdown_c}});
  }
  if (v.power_limit_mw && v.power_default_mw && *v.power_limit_mw < *v.power_default_mw) {
    const bool far = *v.power_limit_mw < kFarUnderDefault * *v.power_default_mw;
    findings->add("power-cap", far ? Severity::kWarning : Severity::kNote, gpu,
                  fmt::format("limited to {:.0f} W; the default is {:.0f} W", watts(*v.power_limit_mw),
                              watts(*v.power_default_mw)),
                  {{"power_limit_w", watts(*v.power_limit_mw)}, {"power_default_w", watts(*v.power_default_mw)}});
  }
}

void judge_errors(const CardFacts& card, Findings* findings) {
  const Vitals& v = *card.vitals;
  const int gpu = card.device.index;
  const auto count = [&](const char* id, Severity severity, std::optional<std::uint64_t> number, const char* what) {
    if (number.value_or(0) == 0) return false;
    findings->add(id, severity, gpu, fmt::format("{} {}", *number, what), {{"count", static_cast<double>(*number)}});
    return true;
  };
  const bool is_new = count("ecc-uncorrected", Severity::kCritical, v.ecc_volatile.uncorrected,
                            "uncorrected memory errors since the driver was loaded");
  count("ecc-corrected", Severity::kNote, v.ecc_volatile.corrected,
        "corrected memory errors since the driver was loaded");
  if (!is_new) {
    count("ecc-history", Severity::kNote, v.ecc_aggregate.uncorrected,
          "uncorrected memory errors in the card's life, none since the driver was loaded");
  }
  if (v.ecc == false) findings->add("ecc-off", Severity::kNote, gpu, "the card has ECC, and it is off");
  if (v.ecc && v.ecc_pending && *v.ecc != *v.ecc_pending) {
    findings->add("ecc-pending", Severity::kNote, gpu,
                  fmt::format("ECC is {} and will be {}", *v.ecc ? "on" : "off", *v.ecc_pending ? "on" : "off"));
  }
  if (v.rows_failed == true) {
    findings->add("row-remap-failed", Severity::kCritical, gpu, "a row of memory with errors could not be replaced");
  }
  if (v.rows_pending == true) {
    findings->add("row-remap-pending", Severity::kWarning, gpu,
                  "a row of memory with errors is replaced only at the next reset");
  }
  count("rows-remapped", Severity::kNote, std::uint64_t{v.rows_corrected.value_or(0)} + v.rows_uncorrected.value_or(0),
        "rows of memory were replaced");
  if (v.pages_pending == true) {
    findings->add("pages-pending", Severity::kWarning, gpu,
                  "a page of memory with errors is taken out only at the next restart");
  }
  count("pages-retired", Severity::kNote,
        std::uint64_t{v.pages_single_bit.value_or(0)} + v.pages_double_bit.value_or(0),
        "pages of memory were taken out");
}

void judge_use(const CardFacts& card, const HostFacts& host, Findings* findings) {
  const Vitals& v = *card.vitals;
  const int gpu = card.device.index;
  if (v.persistence == false) findings->add("persistence-off", Severity::kNote, gpu, "persistence mode is off");
  if (v.compute_mode == ComputeMode::kProhibited) {
    findings->add("compute-mode", Severity::kCritical, gpu, "compute mode is Prohibited: no program gets a context");
  } else if (v.compute_mode && *v.compute_mode != ComputeMode::kDefault && !host.mps) {
    findings->add("compute-mode", Severity::kWarning, gpu,
                  "compute mode is exclusive: one program at a time gets a context, and jobs cannot share the card");
  }
  if (v.mig == true) findings->add("mig-on", Severity::kNote, gpu, "MIG is on: the card is divided");
  if (!v.denied.empty()) {
    std::vector<std::string> calls = v.denied;
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    findings->add("nvml-denied", Severity::kNote, gpu, "NVML refused this user: " + joined(calls));
  }
  judge_memory(card, findings);
}

}  // namespace sluice::cli::doctor
