#include "messages.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "sluice/control.h"

namespace sluice::daemon {

void Messages::hint(const Boards& boards, const Cares& cares) {
  std::map<std::uint64_t, double> ratios;  // of jobs that have, or had, a hint
  for (const auto& board : boards) {
    const auto care = cares.find((*board)->device);
    const double ratio = care == cares.end() ? 1 : care->second.batch_ratio;
    for (const board::Job& job : (*board)->jobs) {
      if (job.live.load() == 0) continue;
      const auto [at, is_new] = ratios.try_emplace(job.id.load(), ratio);
      at->second = std::min(at->second, ratio);
    }
  }
  if (!std::exchange(swept_, true)) {
    for (const std::string& name : control::notices(runtime_dir_, control::kBatchHintPrefix)) written_[name] = "";
  }
  std::map<std::string, std::string> wanted;
  for (const auto& [id, ratio] : ratios) {
    const std::string name = control::kBatchHintPrefix + std::to_string(id);
    if (ratio < 1 || written_.contains(name)) wanted[name] = fmt::format("{:.2f}", ratio);
  }
  for (const auto& [name, text] : written_) {
    if (!wanted.contains(name)) control::remove_notice(runtime_dir_, name);
  }
  for (const auto& [name, text] : wanted) {
    const auto before = written_.find(name);
    if (before != written_.end() && before->second == text) continue;
    if (Status status = control::write_notice(runtime_dir_, name, text); !status.ok())
      spdlog::warn("{}", status.message());
  }
  written_ = std::move(wanted);
}

void Messages::take_out(const std::string& uuid, const std::string& why) const {
  if (Status status = control::write_notice(runtime_dir_, control::kOutOfUsePrefix + uuid, why); !status.ok())
    spdlog::warn("{}", status.message());
}

}  // namespace sluice::daemon
