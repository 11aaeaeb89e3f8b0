#include "judge.h"

#include <algorithm>
#include <cstring>

namespace sluice::cli::doctor {

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kCritical:
      return "critical";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

void Findings::add(const char* id, Severity severity, std::optional<int> gpu, std::string evidence,
                   std::vector<std::pair<std::string, double>> values) {
  Finding finding{id, severity, gpu, std::move(evidence), std::move(values), ""};
  for (const FindingKind& kind : finding_kinds()) {
    if (finding.id == kind.id) finding.advice = kind.advice;
  }
  all_.push_back(std::move(finding));
}

std::vector<Finding> Findings::sorted() && {
  std::stable_sort(all_.begin(), all_.end(), [](const Finding& a, const Finding& b) {
    return a.severity != b.severity ? a.severity > b.severity : a.gpu.value_or(-1) < b.gpu.value_or(-1);
  });
  return std::move(all_);
}

std::vector<Finding> judge(const Facts& facts) {
  Findings findings;
  judge_driver(facts, &findings);
  judge_host(facts, &findings);
  judge_sluice(facts.sluice, &findings);
  for (const CardFacts& card : facts.cards) {
    if (!card.vitals || card.vitals->lost) {
      findings.add("card-lost", Severity::kCritical, card.device.index,
                   "the card does not answer: " + (card.device.error.empty() ? "GPU is lost" : card.device.error));
      continue;
    }
    judge_bus(card, facts.host, &findings);
    judge_clocks(card, &findings);
    judge_errors(card, &findings);
    judge_use(card, facts.host, &findings);
  }
  return std::move(findings).sorted();
}

std::vector<std::string> not_available(const CardFacts& card) {
  std::vector<std::string> names;
  const auto check = [&](bool known, const char* name) {
    if (!known) names.emplace_back(name);
  };
  const health::Vitals v = card.vitals.value_or(health::Vitals());
  check(v.pcie_generation && v.pcie_width && v.pcie_generation_max && v.pcie_width_max, "PCIe link");
  check(v.persistence.has_value(), "persistence");
  check(v.compute_mode.has_value(), "compute mode");
  check(v.throttle.has_value(), "throttle reasons");
  check(v.thermal_violation_ns.has_value(), "throttle counters");
  check(v.temperature_c.has_value(), "temperature");
  check(v.slowdown_c.has_value(), "temperature limits");
  check(v.power_mw && v.power_limit_mw && v.power_default_mw, "power");
  check(v.ecc.has_value(), "ECC");
  check(v.rows_failed.has_value() || v.pages_pending.has_value(), "remapped rows");
  check(card.processes_known, "processes");
  check(card.numa_node.has_value(), "NUMA node");
  return names;
}

bool without_driver(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.id == "driver-missing" || finding.id == "driver-mismatch" || finding.id == "no-card";
  });
}

}  // namespace sluice::cli::doctor
