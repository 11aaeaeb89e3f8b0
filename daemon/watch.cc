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
  Cares cares;
  for (const std::string& uuid : uuids) cares[uuid] = cares_[uuid];
  for (const auto& [uuid, care] : cares_) {
    if (care.clocks_mhz != 0 && !cares.contains(uuid)) set_clocks(uuid, 1, nvml);
  }
  cares_ = std::move(cares);
  for (const std::string& uuid : uuids) {
    const Card& card = before[uuid];
    const health::Vitals sample = pulse_of(nvml, uuid, card.was_there);
    health::guard::Step next = health::guard::step(config_, card.state, sample);
    for (const health::guard::Action& action : next.actions) carry_out(uuid, action, nvml);
    cares_[uuid].throttled = health::guard::throttled(next.state);
    cards_[uuid] = {std::move(next.state), card.was_there || sample.temperature_c || sample.throttle};
  }
}

void Watch::carry_out(const std::string& uuid, const health::guard::Action& action, const health::Nvml& nvml) {
  switch (action.kind) {
    case ActionKind::kHoldLow:
      cares_[uuid].low_ratio = action.ratio;
      return;
    case ActionKind::kBatchHint:
      cares_[uuid].batch_ratio = action.ratio;
      return;
    case ActionKind::kLockClocks:
      return set_clocks(uuid, action.ratio, nvml);
    case ActionKind::kTakeOut:
      out_[uuid] = action.text;
      [[fallthrough]];
    case ActionKind::kRecord:
      spdlog::log(action.routine ? spdlog::level::info : spdlog::level::warn, "{}: {}", uuid, action.text);
  }
}

void Watch::set_clocks(const std::string& uuid, double ratio, const health::Nvml& nvml) {
  Care& care = cares_[uuid];
  if (ratio >= 1) {
    if (care.clocks_mhz == 0) return;
    const Status status = clocks_->unlock(uuid);
    spdlog::warn("{}: {}", uuid, status.ok() ? "its clocks are free again" : status.message());
    if (status.ok()) care.clocks_mhz = 0;
    return;
  }
  const Result<health::Vitals> vitals = nvml.vitals(uuid);
  if (!vitals.ok() || !vitals->sm_clock_max_mhz) return;
  // What somebody else has set is not ours to set back later.
  if ((vitals->throttle.value_or(0) & health::throttle::kUserClocks) != 0) {
    spdlog::warn("{}: its clocks were set by somebody else and are left as they are", uuid);
    return;
  }
  const auto mhz = static_cast<unsigned>(ratio * *vitals->sm_clock_max_mhz);
  const Status status = clocks_->lock(uuid, mhz);
  if (status.ok()) care.clocks_mhz = mhz;
  spdlog::warn("{}: {}", uuid,
               status.ok() ? "its clocks are locked at " + std::to_string(mhz) + " MHz" : status.message());
}

}  // namespace sluice::daemon
