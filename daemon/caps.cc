#include "caps.h"

#include <algorithm>

#include "care.h"

namespace sluice::daemon {

std::uint64_t cap(const policy::Snapshot& view, double low_ratio, policy::Decision* decision) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  if (low_ratio >= 1) return kNever;
  const std::uint64_t at = view.now_ns % kCapCycleNs;
  const auto open_ns = static_cast<std::uint64_t>(static_cast<double>(kCapCycleNs) * std::max(low_ratio, 0.0));
  bool any = false;
  for (const policy::JobView& job : view.jobs) {
    if (job.priority >= kLowBelow || !job.can_be_closed) continue;
    any = true;
    const bool is_closed = std::count(decision->closed.begin(), decision->closed.end(), job.id) > 0;
    if (at >= open_ns && !is_closed) decision->closed.push_back(job.id);
  }
  if (!any) return kNever;
  return view.now_ns - at + (at < open_ns ? open_ns : kCapCycleNs);
}

}  // namespace sluice::daemon
