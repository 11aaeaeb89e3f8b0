#include "judge.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <set>

namespace sluice::cli::doctor {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A server with one data centre card, at work; nothing is wrong with it.
Facts healthy() {
  Facts facts;
  facts.driver.cuda_library = "/usr/lib/libcuda.so.1";
  facts.driver.nvml_library = "/usr/lib/libnvidia-ml.so.1";
  facts.driver.version = facts.driver.module_version = facts.driver.library_version = "580.95.05";
  facts.driver.counters_for_root_only = false;
  CardFacts card;
  card.device.uuid = "GPU-1";
  card.device.memory_total_bytes = 140 * kGiB;
  card.device.memory_used_bytes = 100 * kGiB;
  card.device.utilization_ratio = 0.97;
  card.processes_known = true;
  card.processes = {{4711, "python", "ada", 100 * kGiB}};
  card.slot_width = card.card_width = 16;
  card.numa_node = 0;
  card.near_cpus = {0, 1, 2, 3};
  health::Vitals v;
  v.pcie_generation = v.pcie_generation_max = v.pcie_generation_card = 5;
  v.pcie_width = v.pcie_width_max = 16;
  v.persistence = true;
  v.compute_mode = health::ComputeMode::kDefault;
  v.mig = false;
  v.performance_state = 0;
  v.sm_clock_mhz = v.sm_clock_max_mhz = 1980;
  v.throttle = 0;
  v.power_violation_ns = 5'000'000'000;  // reaching the cap is what a card at work does
  v.thermal_violation_ns = v.board_violation_ns = v.reliability_violation_ns = 0;
  v.temperature_c = 52;
  v.slowdown_c = 87;
  v.power_mw = 512000;
  v.power_limit_mw = v.power_default_mw = 700000;
  v.ecc = v.ecc_pending = true;
  v.ecc_volatile = v.ecc_aggregate = {0, 0};
  v.rows_corrected = v.rows_uncorrected = 0;
  v.rows_pending = v.rows_failed = false;
  v.pages_single_bit = v.pages_double_bit = 0;
  v.pages_pending = false;
  card.vitals = v;
  facts.cards = {card};
  HostFacts& host = facts.host;
  host.online_cpus = host.allowed_cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  host.shm_total_bytes = 64 * kGiB;
  host.shm_free_bytes = 60 * kGiB;
  host.cgroup.periods = 1000;
  host.cgroup.throttled_periods = 0;
  facts.sluice.version = facts.sluice.daemon_version = "0.1.0";
  facts.sluice.daemon = 99;
  facts.sluice.shim = "/opt/libcuda.so.1";
  return facts;
}

struct Case {
  const char* id;
  Severity severity;
  std::function<void(Facts&)> spoil;
};

health::Vitals& vitals(Facts& facts) { return *facts.cards[0].vitals; }
std::function<void(Facts&)> with(std::function<void(health::Vitals&)> change) {
  return [change = std::move(change)](Facts& facts) { change(vitals(facts)); };
}

// The least that brings each finding about: one step less must not.
std::vector<Case> cases() {
  using S = Severity;
  namespace bits = health::throttle;
  return {
      {"driver-missing", S::kCritical,
       [](Facts& f) {
         f.driver.cuda_library = "";
         f.driver.cuda_error = "no libcuda.so.1";
       }},
      {"driver-missing", S::kCritical, [](Facts& f) { f.driver.nvml_error = "no NVML"; }},
      {"driver-mismatch", S::kCritical,
       [](Facts& f) {
         f.driver.nvml_error = "mismatch";
         f.driver.module_version = "575.57.08";
       }},
      {"driver-old", S::kWarning, [](Facts& f) { f.driver.version = "510.108.03"; }},
      {"no-card", S::kCritical, [](Facts& f) { f.cards.clear(); }},
      {"device-denied", S::kCritical, [](Facts& f) { f.driver.forbidden_files = {"/dev/nvidiactl"}; }},
      {"counters-restricted", S::kNote, [](Facts& f) { f.driver.counters_for_root_only = true; }},
      {"card-lost", S::kCritical, [](Facts& f) { f.cards[0].vitals.reset(); }},
      {"card-lost", S::kCritical, with([](health::Vitals& v) { v.lost = true; })},
      {"nvml-denied", S::kNote, with([](health::Vitals& v) { v.denied = {"nvmlDeviceGetPowerUsage"}; })},
      {"pcie-width", S::kWarning, with([](health::Vitals& v) { v.pcie_width = 8; })},
      {"pcie-generation", S::kWarning, with([](health::Vitals& v) { v.pcie_generation = 4; })},
      {"pcie-slot", S::kNote, with([](health::Vitals& v) { v.pcie_generation = v.pcie_generation_max = 4; })},
      {"pcie-slot", S::kNote, [](Facts& f) { f.cards[0].slot_width = 8; }},
      {"numa-away", S::kWarning,
       [](Facts& f) {
         f.cards[0].near_cpus = {8, 9};
       }},
      {"throttle-hardware", S::kCritical, with([](health::Vitals& v) { v.throttle = bits::kHardware; })},
      {"throttle-hardware", S::kCritical, with([](health::Vitals& v) { v.throttle = bits::kHardwareHeat; })},
      {"throttle-hardware", S::kCritical, with([](health::Vitals& v) { v.throttle = bits::kPowerBrake; })},
      {"throttle-heat", S::kWarning, with([](health::Vitals& v) { v.throttle = bits::kHeat; })},
      {"throttle-power", S::kNote, with([](health::Vitals& v) { v.throttle = bits::kPowerCap; })},
      {"clocks-set", S::kNote, with([](health::Vitals& v) { v.throttle = bits::kUserClocks; })},
      {"throttled-before", S::kNote, with([](health::Vitals& v) { v.thermal_violation_ns = 1'000'000'000; })},
      {"temperature", S::kWarning, with([](health::Vitals& v) { v.temperature_c = 82; })},
      {"temperature", S::kCritical, with([](health::Vitals& v) { v.temperature_c = 87; })},
      {"power-cap", S::kNote, with([](health::Vitals& v) { v.power_limit_mw = 560000; })},
      {"power-cap", S::kWarning, with([](health::Vitals& v) { v.power_limit_mw = 559999; })},
      {"ecc-uncorrected", S::kCritical, with([](health::Vitals& v) { v.ecc_volatile.uncorrected = 1; })},
      {"ecc-corrected", S::kNote, with([](health::Vitals& v) { v.ecc_volatile.corrected = 1; })},
      {"ecc-history", S::kNote, with([](health::Vitals& v) { v.ecc_aggregate.uncorrected = 1; })},
      {"ecc-off", S::kNote, with([](health::Vitals& v) { v.ecc = v.ecc_pending = false; })},
      {"ecc-pending", S::kNote, with([](health::Vitals& v) { v.ecc_pending = false; })},
      {"row-remap-failed", S::kCritical, with([](health::Vitals& v) { v.rows_failed = true; })},
      {"row-remap-pending", S::kWarning, with([](health::Vitals& v) { v.rows_pending = true; })},
      {"rows-remapped", S::kNote, with([](health::Vitals& v) { v.rows_uncorrected = 1; })},
      {"pages-pending", S::kWarning, with([](health::Vitals& v) { v.pages_pending = true; })},
      {"pages-retired", S::kNote, with([](health::Vitals& v) { v.pages_double_bit = 1; })},
      {"persistence-off", S::kNote, with([](health::Vitals& v) { v.persistence = false; })},
      {"compute-mode", S::kWarning,
       with([](health::Vitals& v) { v.compute_mode = health::ComputeMode::kExclusiveProcess; })},
      {"compute-mode", S::kCritical,
       with([](health::Vitals& v) { v.compute_mode = health::ComputeMode::kProhibited; })},
      {"mig-on", S::kNote, with([](health::Vitals& v) { v.mig = true; })},
      {"mps-running", S::kNote,
       [](Facts& f) {
         f.host.mps = ProcessFacts{7, "nvidia-cuda-mps", "root", {}};
       }},
      {"memory-held", S::kNote, [](Facts& f) { f.cards[0].device.utilization_ratio = 0; }},
      {"memory-held", S::kNote,
       [](Facts& f) { f.cards[0].device.memory_used_bytes = f.cards[0].processes[0].memory_bytes = 126 * kGiB; }},
      {"memory-unseen", S::kNote, [](Facts& f) { f.cards[0].processes.clear(); }},
      {"shm-small", S::kWarning, [](Facts& f) { f.host.shm_total_bytes = f.host.shm_free_bytes = kGiB - 1; }},
      {"shm-full", S::kWarning, [](Facts& f) { f.host.shm_free_bytes = 6 * kGiB; }},
      {"cpu-limit", S::kNote, [](Facts& f) { f.host.cgroup.cpu_cores = 2; }},
      {"cpu-limit", S::kWarning, [](Facts& f) { f.host.cgroup.cpu_cores = 1.9; }},
      {"cpu-throttled", S::kWarning, [](Facts& f) { f.host.cgroup.throttled_periods = 51; }},
      {"cpu-affinity", S::kNote,
       [](Facts& f) {
         f.host.allowed_cpus = {0, 1};
       }},
      {"cpu-affinity", S::kWarning, [](Facts& f) { f.host.allowed_cpus = {0}; }},
      {"memory-limit", S::kNote, [](Facts& f) { f.host.cgroup.memory_limit_bytes = 139 * kGiB; }},
      {"memory-limit", S::kWarning,
       [](Facts& f) {
         f.host.cgroup.memory_limit_bytes = 200 * kGiB;
         f.host.cgroup.memory_used_bytes = 181 * kGiB;
       }},
      {"runtime-directory", S::kWarning, [](Facts& f) { f.sluice.runtime_error = "not yours"; }},
      {"shim-missing", S::kWarning, [](Facts& f) { f.sluice.shim = ""; }},
      {"daemon-missing", S::kWarning,
       [](Facts& f) {
         f.sluice.daemon.reset();
         f.sluice.live_jobs = 1;
       }},
      {"daemon-silent", S::kWarning, [](Facts& f) { f.sluice.daemon_error = "timed out"; }},
      {"daemon-version", S::kWarning, [](Facts& f) { f.sluice.daemon_version = "0.0.9"; }},
      {"board-unusable", S::kWarning, [](Facts& f) { f.sluice.bad_boards = {"it is of version 2"}; }},
  };
}

std::string listed(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.id + ": " + finding.evidence + "\n";
  return text;
}

TEST(Judge, AHealthyMachineHasNoFindings) {
  const auto findings = judge(healthy());
  EXPECT_TRUE(findings.empty()) << listed(findings);
  EXPECT_TRUE(not_available(healthy().cards[0]).empty());
}

TEST(Judge, EachFindingHasItsCauseAndNoOther) {
  for (const Case& c : cases()) {
    Facts facts = healthy();
    c.spoil(facts);
    const auto findings = judge(facts);
    ASSERT_EQ(findings.size(), 1u) << c.id << "\n" << listed(findings);
    EXPECT_EQ(findings[0].id, c.id);
    EXPECT_EQ(findings[0].severity, c.severity) << c.id;
    EXPECT_FALSE(findings[0].evidence.empty()) << c.id;
    EXPECT_FALSE(findings[0].advice.empty()) << c.id;
  }
}

TEST(Judge, EveryKindIsTriedAndDocumented) {
  std::ifstream file(DOCTOR_DOCUMENT);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> tried;
  for (const Case& c : cases()) tried.insert(c.id);
  std::set<std::string> kinds;
  for (const FindingKind& kind : finding_kinds()) {
    kinds.insert(kind.id);
    EXPECT_NE(document.find("| `" + std::string(kind.id) + "` |"), std::string::npos) << kind.id;
  }
  EXPECT_EQ(tried, kinds);
}

// A step less than what cases() has.
TEST(Judge, JustInsideTheLimits) {
  const std::function<void(Facts&)> harmless[] = {
      [](Facts& f) { f.driver.version = "515.65.01"; },
      [](Facts& f) { f.host.is_root = f.driver.counters_for_root_only.emplace(true); },
      with([](health::Vitals& v) { v.throttle = health::throttle::kIdle; }),
      with([](health::Vitals& v) { v.temperature_c = 81; }),
      with([](health::Vitals& v) { v.thermal_violation_ns = 999'999'999; }),
      with([](health::Vitals& v) { v.power_limit_mw = 750000; }),
      [](Facts& f) {
        f.cards[0].near_cpus = {7, 8};
      },
      [](Facts& f) { f.host.shm_total_bytes = f.host.shm_free_bytes = kGiB; },
      [](Facts& f) { f.host.shm_free_bytes = 7 * kGiB; },
      [](Facts& f) { f.host.cgroup.cpu_cores = 8; },
      [](Facts& f) { f.host.cgroup.throttled_periods = 50; },
      [](Facts& f) { f.host.cgroup.memory_limit_bytes = 140 * kGiB; },
      [](Facts& f) { f.sluice.daemon.reset(); },  // it starts on demand
      [](Facts& f) {
        f.host.cgroup.memory_limit_bytes = 200 * kGiB;
        f.host.cgroup.memory_used_bytes = 180 * kGiB;
      },
      [](Facts& f) {  // a process whose memory is not told may hold all of it
        f.cards[0].processes = {{4711, "python", "ada", std::nullopt}};
      },
      [](Facts& f) {  // in a power saving state the link is slow by intent
        vitals(f).pcie_generation = 1;
        vitals(f).performance_state = 8;
      },
      [](Facts& f) {
        vitals(f).pcie_generation = 1;
        f.cards[0].device.utilization_ratio = 0;
        f.cards[0].processes.clear();
        f.cards[0].device.memory_used_bytes = 0;
      },
  };
  for (std::size_t i = 0; i < std::size(harmless); ++i) {
    Facts facts = healthy();
    harmless[i](facts);
    const auto findings = judge(facts);
    EXPECT_TRUE(findings.empty()) << i << "\n" << listed(findings);
  }
}

TEST(Judge, WhatIsNotToldIsNoFinding) {
  Facts facts = healthy();
  facts.cards[0].vitals = health::Vitals();
  facts.cards[0].device = {};
  facts.cards[0].processes_known = false;
  facts.cards[0].processes.clear();
  facts.host = {};
  EXPECT_TRUE(judge(facts).empty()) << listed(judge(facts));
  const auto missing = not_available(facts.cards[0]);
  EXPECT_NE(std::find(missing.begin(), missing.end(), "ECC"), missing.end());
}

TEST(Judge, ExclusiveModeIsHowMpsWantsIt) {
  Facts facts = healthy();
  vitals(facts).compute_mode = health::ComputeMode::kExclusiveProcess;
  facts.host.mps = ProcessFacts{7, "nvidia-cuda-mps", "root", {}};
  ASSERT_EQ(judge(facts).size(), 1u);
  EXPECT_EQ(judge(facts)[0].id, "mps-running");
}

TEST(Judge, WorstFirstAndEachCardByItself) {
  Facts facts = healthy();
  facts.cards.push_back(facts.cards[0]);
  facts.cards[1].device.index = 1;
  facts.cards[1].vitals->ecc_volatile.uncorrected = 3;
  facts.cards[0].vitals->persistence = false;
  facts.host.shm_free_bytes = 0;
  const auto findings = judge(facts);
  ASSERT_EQ(findings.size(), 3u) << listed(findings);
  EXPECT_EQ(findings[0].id, "ecc-uncorrected");
  EXPECT_EQ(findings[0].gpu, 1);
  EXPECT_EQ(findings[0].values, (std::vector<std::pair<std::string, double>>{{"count", 3}}));
  EXPECT_EQ(findings[1].id, "shm-full");
  EXPECT_EQ(findings[2].gpu, 0);
}

}  // namespace
}  // namespace sluice::cli::doctor
