// Who holds a card's memory.
#include <fmt/format.h>

#include <algorithm>

#include "judge.h"
#include "sluice/base/units.h"

namespace sluice::cli::doctor {
namespace {

constexpr double kNearlyFull = 0.9;
constexpr double kWorthTelling = 0.1;                           // of the card, held while nothing runs
constexpr std::uint64_t kUnseenBytes = std::uint64_t{1} << 30;  // more than any driver keeps for itself
constexpr std::size_t kNamed = 3;

std::string name_of(const ProcessFacts& process) {
  const std::string who = process.name.empty() ? "not visible from here" : process.name + ", " + process.user;
  const std::string held = process.memory_bytes ? format_bytes(*process.memory_bytes) : "N/A";
  return fmt::format("{} ({}) {}", process.pid, who, held);
}

}  // namespace

void judge_memory(const CardFacts& card, Findings* findings) {
  const health::Device& device = card.device;
  if (!device.memory_total_bytes || !device.memory_used_bytes || *device.memory_total_bytes == 0) return;
  const auto total = static_cast<double>(*device.memory_total_bytes),
             used = static_cast<double>(*device.memory_used_bytes);
  const std::vector<std::pair<std::string, double>> values = {{"memory_used_bytes", used},
                                                              {"memory_total_bytes", total}};
  const std::string amount =
      fmt::format("{} of {}", format_bytes(*device.memory_used_bytes), format_bytes(*device.memory_total_bytes));

  const bool idle = device.utilization_ratio == 0.0;
  if (!card.processes.empty() && (used >= kNearlyFull * total || (idle && used >= kWorthTelling * total))) {
    std::vector<ProcessFacts> largest = card.processes;
    std::stable_sort(largest.begin(), largest.end(), [](const ProcessFacts& a, const ProcessFacts& b) {
      return a.memory_bytes.value_or(0) > b.memory_bytes.value_or(0);
    });
    std::string names;
    for (std::size_t i = 0; i < std::min(kNamed, largest.size()); ++i)
      names += (i == 0 ? "" : "; ") + name_of(largest[i]);
    if (largest.size() > kNamed) names += fmt::format("; and {} more", largest.size() - kNamed);
    findings->add("memory-held", Severity::kNote, device.index,
                  fmt::format("{} held{}: {}", amount, idle ? " while nothing runs" : "", names), values);
  }
  if (!card.processes_known) return;
  double seen = 0;
  for (const ProcessFacts& process : card.processes) {
    if (!process.memory_bytes) return;  // it may be all of it
    seen += static_cast<double>(*process.memory_bytes);
  }
  if (used - seen >= static_cast<double>(kUnseenBytes) && used - seen >= kWorthTelling * total) {
    findings->add("memory-unseen", Severity::kNote, device.index,
                  fmt::format("{} in use, of which visible processes hold {}", amount,
                              format_bytes(static_cast<std::uint64_t>(seen))),
                  values);
  }
}

}  // namespace sluice::cli::doctor
