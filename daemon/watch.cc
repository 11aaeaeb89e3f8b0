#include "watch.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace sluice::daemon {

using health::guard::ActionKind;

health::Vitals pulse_of(const health::Nvml& nvml, const std::string& uuid) {
  Result<health::Vitals> sample = nvml.pulse(uuid);
  if (sample.ok()) return std::move(*sample);
  health::Vitals unknown;
  unknown.lost = sample.status().code() == Code::kUnavailable;
  return unknown;
}

void Watch::look(const health::Nvml& nvml, const std::vector<std::string>& uuids) {
  std::map<std::string, health::guard::State> before = std::exchange(cards_, {});
  for (const std::string& uuid : uuids) {
    health::guard::Step next = health::guard::step(config_, before[uuid], pulse_of(nvml, uuid));
    cards_[uuid] = std::move(next.state);
    for (const health::guard::Action& action : next.actions) {
      if (action.kind != ActionKind::kRecord && action.kind != ActionKind::kTakeOut) continue;
      spdlog::log(action.routine ? spdlog::level::info : spdlog::level::warn, "{}: {}", uuid, action.text);
    }
  }
}

}  // namespace sluice::daemon
