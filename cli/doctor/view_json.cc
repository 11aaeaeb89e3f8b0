#include "view.h"

namespace sluice::cli::doctor {
namespace {

using nlohmann::json;

// What is not known is null, never 0.
template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}
json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json watts(const std::optional<unsigned>& milliwatts) { return milliwatts ? json(*milliwatts / 1000.0) : json(); }

json compute_mode(const std::optional<health::ComputeMode>& mode) {
  if (!mode) return {};
  switch (*mode) {
    case health::ComputeMode::kDefault:
      return "default";
    case health::ComputeMode::kProhibited:
      return "prohibited";
    case health::ComputeMode::kExclusiveThread:
      return "exclusive thread";
    case health::ComputeMode::kExclusiveProcess:
      return "exclusive process";
  }
  return static_cast<int>(*mode);
}

json counts(const health::EccCounts& ecc) {
  return {{"corrected", or_null(ecc.corrected)}, {"uncorrected", or_null(ecc.uncorrected)}};
}

json process_json(const ProcessFacts& process) {
  return {{"pid", process.pid},
          {"name", or_null(process.name)},
          {"user", or_null(process.user)},
          {"memory_bytes", or_null(process.memory_bytes)}};
}

json card_json(const CardFacts& card, bool simulated) {
  const health::Vitals v = card.vitals.value_or(health::Vitals());
  json processes = json::array();
  for (const ProcessFacts& process : card.processes) processes.push_back(process_json(process));
  return {{"index", card.device.index},
          {"uuid", or_null(card.device.uuid)},
          {"name", or_null(card.device.name)},
          {"simulated", simulated},
          {"lost", !card.vitals || v.lost},
          {"not_available", not_available(card)},
          {"pci", or_null(v.pci)},
          {"pcie",
           {{"generation", or_null(v.pcie_generation)},
            {"generation_max", or_null(v.pcie_generation_max)},
            {"generation_card", or_null(v.pcie_generation_card)},
            {"lanes", or_null(v.pcie_width)},
            {"lanes_max", or_null(v.pcie_width_max)},
            {"replays", or_null(v.pcie_replays)}}},
          {"numa_node", or_null(card.numa_node)},
          {"persistence", or_null(v.persistence)},
          {"compute_mode", compute_mode(v.compute_mode)},
          {"mig", or_null(v.mig)},
          {"performance_state", or_null(v.performance_state)},
          {"sm_clock_mhz", or_null(v.sm_clock_mhz)},
          {"sm_clock_max_mhz", or_null(v.sm_clock_max_mhz)},
          {"memory_clock_mhz", or_null(v.memory_clock_mhz)},
          {"memory_clock_max_mhz", or_null(v.memory_clock_max_mhz)},
          {"throttle", v.throttle ? json(health::throttle::reasons(*v.throttle)) : json()},
          {"throttled_ns",
           {{"power", or_null(v.power_violation_ns)},
            {"heat", or_null(v.thermal_violation_ns)},
            {"board", or_null(v.board_violation_ns)},
            {"reliability", or_null(v.reliability_violation_ns)}}},
          {"temperature_c", or_null(v.temperature_c)},
          {"operating_max_c", or_null(v.operating_max_c)},
          {"slowdown_c", or_null(v.slowdown_c)},
          {"shutdown_c", or_null(v.shutdown_c)},
          {"power_w", watts(v.power_mw)},
          {"power_limit_w", watts(v.power_limit_mw)},
          {"power_default_w", watts(v.power_default_mw)},
          {"ecc", or_null(v.ecc)},
          {"ecc_volatile", counts(v.ecc_volatile)},
          {"ecc_aggregate", counts(v.ecc_aggregate)},
          {"remapped_rows",
           {{"corrected", or_null(v.rows_corrected)},
            {"uncorrected", or_null(v.rows_uncorrected)},
            {"pending", or_null(v.rows_pending)},
            {"failed", or_null(v.rows_failed)}}},
          {"retired_pages",
           {{"single_bit", or_null(v.pages_single_bit)},
            {"double_bit", or_null(v.pages_double_bit)},
            {"pending", or_null(v.pages_pending)}}},
          {"memory_total_bytes", or_null(card.device.memory_total_bytes)},
          {"memory_used_bytes", or_null(card.device.memory_used_bytes)},
          {"utilization_ratio", or_null(card.device.utilization_ratio)},
          {"processes", card.processes_known ? processes : json()}};
}

json size_or_null(const std::set<int>& cpus) { return cpus.empty() ? json() : json(cpus.size()); }

}  // namespace

json to_json(const Facts& facts, const std::vector<Finding>& findings) {
  json found = json::array();
  for (const Finding& finding : findings) {
    json uuid;
    for (const CardFacts& card : facts.cards) {
      if (finding.gpu == card.device.index) uuid = or_null(card.device.uuid);
    }
    json values = json::object();
    for (const auto& [key, value] : finding.values) values[key] = value;
    found.push_back({{"id", finding.id},
                     {"severity", severity_name(finding.severity)},
                     {"gpu", or_null(finding.gpu)},
                     {"device", uuid},
                     {"evidence", finding.evidence},
                     {"values", values},
                     {"advice", finding.advice}});
  }
  json devices = json::array();
  for (const CardFacts& card : facts.cards) devices.push_back(card_json(card, facts.driver.simulated));
  const DriverFacts& driver = facts.driver;
  const HostFacts& host = facts.host;
  const SluiceFacts& sluice = facts.sluice;
  return {{"findings", found},
          {"driver",
           {{"version", or_null(driver.version)},
            {"module_version", or_null(driver.module_version)},
            {"library_version", or_null(driver.library_version)},
            {"cuda_version", or_null(driver.cuda_version)},
            {"library", or_null(driver.cuda_library)},
            {"nvml", or_null(driver.nvml_library)},
            {"simulated", driver.simulated},
            {"counters_for_root_only", or_null(driver.counters_for_root_only)}}},
          {"devices", devices},
          {"host",
           {{"online_cpus", size_or_null(host.online_cpus)},
            {"allowed_cpus", size_or_null(host.allowed_cpus)},
            {"cgroup_cpus", or_null(host.cgroup.cpu_cores)},
            {"cgroup_memory_limit_bytes", or_null(host.cgroup.memory_limit_bytes)},
            {"cgroup_memory_used_bytes", or_null(host.cgroup.memory_used_bytes)},
            {"shm_total_bytes", or_null(host.shm_total_bytes)},
            {"shm_free_bytes", or_null(host.shm_free_bytes)},
            {"mps_pid", host.mps ? json(host.mps->pid) : json()}}},
          {"sluice",
           {{"version", sluice.version},
            {"shim", or_null(sluice.shim)},
            {"daemon_pid", or_null(sluice.daemon)},
            {"daemon_version", or_null(sluice.daemon_version)},
            {"jobs", sluice.live_jobs}}}};
}

}  // namespace sluice::cli::doctor
