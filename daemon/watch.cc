#include "watch.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace sluice::daemon {

using health::guard::ActionKind;

health::Vitals pulse_of(const health::Nvml& nvml, const std::string& uuid, bool was_there) {
  Result<health::Vitals> sample = nvml.pulse(uuid);
  if (sample.ok()) return std::move(*sample);
  health::Vitals unknown;
  const Code code = sample.status().code();
  unknown.lost = code == Code::kUnavailable || (was_there && code == Code::kNotFound);
  return unknown;
}

void Watch::look(const health::Nvml& nvml, const std::vector<std::string>& uuids) {
  std::map<std::string, Card> before = std::exchange(cards_, {});
  for (const std::string& uuid : uuids) {
    const Card& card = before[uuid];
    const health::Vitals sample = pulse_of(nvml, uuid, card.was_there);
    health::guard::Step next = health::guard::step(config_, card.state, sample);
    cards_[uuid] = {std::move(next.state), card.was_there || sample.temperature_c || sample.throttle};
    for (const health::guard::Action& action : next.actions) {
      if (action.kind != ActionKind::kRecord && action.kind != ActionKind::kTakeOut) continue;
      spdlog::log(action.routine ? spdlog::level::info : spdlog::level::warn, "{}: {}", uuid, action.text);
    }
  }
}

}  // namespace sluice::daemon
