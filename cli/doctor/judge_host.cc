// Findings about the driver, the machine around the cards, and Sluice.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "judge.h"
#include "sluice/base/units.h"

namespace sluice::cli::doctor {
namespace {

constexpr int kOldestDriver = 515;  // the first with stream memory operations v2, which the gates need
constexpr std::uint64_t kSmallShmBytes = std::uint64_t{1}
                                         << 30;  // containers begin with 64 MiB; a loader's batches take more
constexpr double kNearlyFull = 0.9;
constexpr double kFewCoresPerCard = 2;      // one for the program's own thread, one for its loader
constexpr double kThrottledPeriods = 0.05;  // of all, from where on it is more than a start's burst

void judge_cgroup(const Facts& facts, Findings* findings) {
  const HostFacts& host = facts.host;
  const CgroupFacts& group = host.cgroup;
  const auto cards = static_cast<double>(std::max<std::size_t>(1, facts.cards.size()));
  const auto online = static_cast<double>(host.online_cpus.size());
  if (group.cpu_cores && *group.cpu_cores < online) {
    findings->add("cpu-limit", *group.cpu_cores < kFewCoresPerCard * cards ? Severity::kWarning : Severity::kNote, {},
                  fmt::format("the control group may use {:.3g} of {:.0f} processors", *group.cpu_cores, online),
                  {{"cores", *group.cpu_cores}, {"online_cores", online}});
  }
  if (group.periods.value_or(0) > 0 && group.throttled_periods) {
    const double ratio = static_cast<double>(*group.throttled_periods) / static_cast<double>(*group.periods);
    if (ratio > kThrottledPeriods) {
      findings->add("cpu-throttled", Severity::kWarning, {},
                    fmt::format("the control group was stopped for want of processor time in {:.0f} % of its periods",
                                ratio * 100),
                    {{"throttled_ratio", ratio}});
    }
  }
  if (!group.memory_limit_bytes) return;
  const auto limit = static_cast<double>(*group.memory_limit_bytes);
  const auto used = static_cast<double>(group.memory_used_bytes.value_or(0));
  std::uint64_t largest = 0;
  for (const CardFacts& card : facts.cards) largest = std::max(largest, card.device.memory_total_bytes.value_or(0));
  if (used > kNearlyFull * limit) {
    findings->add("memory-limit", Severity::kWarning, {},
                  fmt::format("the control group holds {} of the {} of main memory that it may",
                              format_bytes(*group.memory_used_bytes), format_bytes(*group.memory_limit_bytes)),
                  {{"used_bytes", used}, {"limit_bytes", limit}});
  } else if (limit < static_cast<double>(largest)) {
    findings->add("memory-limit", Severity::kNote, {},
                  fmt::format("the control group may use {} of main memory, less than a card has ({})",
                              format_bytes(*group.memory_limit_bytes), format_bytes(largest)),
                  {{"limit_bytes", limit}, {"card_bytes", static_cast<double>(largest)}});
  }
}

}  // namespace

void judge_driver(const Facts& facts, Findings* findings) {
  const DriverFacts& driver = facts.driver;
  if (!driver.forbidden_files.empty()) {
    findings->add("device-denied", Severity::kCritical, {},
                  fmt::format("this user may not open {}", fmt::join(driver.forbidden_files, ", ")));
  }
  if (driver.cuda_library.empty() || !driver.nvml_error.empty()) {
    const bool known = !driver.module_version.empty() && !driver.library_version.empty();
    const bool differ = known && driver.module_version != driver.library_version;
    if (differ || driver.nvml_error.find("version mismatch") != std::string::npos) {  // NVML's words for its error 18
      findings->add("driver-mismatch", Severity::kCritical, {},
                    differ ? fmt::format("the kernel module is version {}, the libraries are {}", driver.module_version,
                                         driver.library_version)
                           : driver.nvml_error);
    } else {
      findings->add("driver-missing", Severity::kCritical, {},
                    driver.cuda_library.empty() ? driver.cuda_error : driver.nvml_error);
    }
    return;
  }
  const int major = std::atoi(driver.version.c_str());
  if (major > 0 && major < kOldestDriver) {
    findings->add("driver-old", Severity::kWarning, {}, fmt::format("driver {}", driver.version), {{"driver", major}});
  }
  if (facts.cards.empty()) findings->add("no-card", Severity::kCritical, {}, "the driver finds no GPU");
  if (driver.counters_for_root_only == true && !facts.host.is_root) {
    findings->add("counters-restricted", Severity::kNote, {}, "the driver keeps hardware counters for root");
  }
}

void judge_host(const Facts& facts, Findings* findings) {
  const HostFacts& host = facts.host;
  if (host.mps) {
    findings->add("mps-running", Severity::kNote, {},
                  fmt::format("{} ({}) runs, process {}", host.mps->name, host.mps->user, host.mps->pid),
                  {{"pid", host.mps->pid}});
  }
  if (host.shm_total_bytes) {
    const auto total = static_cast<double>(*host.shm_total_bytes);
    const double used = total - static_cast<double>(host.shm_free_bytes.value_or(*host.shm_total_bytes));
    if (*host.shm_total_bytes < kSmallShmBytes) {
      findings->add("shm-small", Severity::kWarning, {},
                    fmt::format("/dev/shm has {}", format_bytes(*host.shm_total_bytes)), {{"total_bytes", total}});
    } else if (used > kNearlyFull * total) {
      findings->add("shm-full", Severity::kWarning, {},
                    fmt::format("{} of /dev/shm's {} are left", format_bytes(*host.shm_free_bytes),
                                format_bytes(*host.shm_total_bytes)),
                    {{"used_bytes", used}, {"total_bytes", total}});
    }
  }
  judge_cgroup(facts, findings);
  const std::size_t allowed = host.allowed_cpus.size(), online = host.online_cpus.size();
  if (allowed > 0 && allowed < online) {
    const auto wanted = kFewCoresPerCard * static_cast<double>(std::max<std::size_t>(1, facts.cards.size()));
    findings->add("cpu-affinity", static_cast<double>(allowed) < wanted ? Severity::kWarning : Severity::kNote, {},
                  fmt::format("this shell may use {} of {} processors", allowed, online),
                  {{"allowed_cores", static_cast<double>(allowed)}, {"online_cores", static_cast<double>(online)}});
  }
}

void judge_sluice(const SluiceFacts& sluice, Findings* findings) {
  if (!sluice.runtime_error.empty()) findings->add("runtime-directory", Severity::kWarning, {}, sluice.runtime_error);
  if (sluice.shim.empty()) findings->add("shim-missing", Severity::kWarning, {}, "this installation has no shim");
  if (!sluice.daemon_error.empty()) {
    findings->add("daemon-silent", Severity::kWarning, {}, sluice.daemon_error);
  } else if (!sluice.daemon && sluice.live_jobs > 0) {
    findings->add("daemon-missing", Severity::kWarning, {},
                  fmt::format("{} jobs run, and no daemon does", sluice.live_jobs),
                  {{"jobs", static_cast<double>(sluice.live_jobs)}});
  }
  if (sluice.daemon && sluice.daemon_version != sluice.version) {
    findings->add("daemon-version", Severity::kWarning, {},
                  fmt::format("the daemon is version {}, this is {}", sluice.daemon_version, sluice.version));
  }
  for (const std::string& board : sluice.bad_boards) findings->add("board-unusable", Severity::kWarning, {}, board);
}

}  // namespace sluice::cli::doctor
