// The guard: what to do about a card that is not well. Pure.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "sluice/health.h"

namespace sluice::health::guard {
namespace {

// What the low jobs may have at each level.
constexpr double kRatios[kLevels + 1] = {1, 0.5, 0.25, 0};
constexpr int kClockLevel = 2;  // from which on the clocks are locked, where that is allowed

enum class Heat { kUnknown, kCool, kBetween, kHot };

Heat heat_of(const Config& config, const Vitals& v) {
  if (v.throttle && (*v.throttle & (throttle::kAnyHeat | throttle::kFaults)) != 0) return Heat::kHot;
  if (!v.temperature_c || !v.slowdown_c) return v.throttle ? Heat::kCool : Heat::kUnknown;
  if (*v.temperature_c + config.margin_c >= *v.slowdown_c) return Heat::kHot;
  return *v.temperature_c + config.margin_c + config.relief_c <= *v.slowdown_c ? Heat::kCool : Heat::kBetween;
}

// Whether the condition has changed.
bool update(Debounced* condition, bool now, unsigned begin_after, unsigned end_after) {
  if (now == condition->on) {
    condition->against = 0;
    return false;
  }
  if (++condition->against < (condition->on ? end_after : begin_after)) return false;
  *condition = {now, 0};
  return true;
}

class Stepper {
 public:
  Stepper(const Config& config, const State& before) : config_(config) { step_.state = before; }

  Step run(const Vitals& sample) && {
    if (step_.state.out) return std::move(step_);
    watch_presence(sample);
    if (sample.lost || step_.state.out) return std::move(step_);
    watch_reasons(sample);
    watch_errors(sample);
    watch_heat(sample);
    return std::move(step_);
  }

 private:
  void record(std::string text, bool routine = false) {
    step_.actions.push_back({ActionKind::kRecord, 1, std::move(text), routine});
  }

  void take_out(std::string why) {
    step_.state.out = true;
    step_.actions.push_back({ActionKind::kTakeOut, 1, std::move(why), false});
  }

  void watch_presence(const Vitals& sample) {
    State& s = step_.state;
    s.lost = sample.lost ? s.lost + 1 : 0;
    if (s.lost >= config_.act_after) take_out("the card has fallen off the bus");
  }

  void watch_reasons(const Vitals& sample) {
    if (!sample.throttle) return;
    for (std::size_t i = 0; i < std::size(step_.state.reasons); ++i) {
      const std::uint64_t bit = std::uint64_t{1} << i;
      if (bit == throttle::kIdle) continue;
      Debounced& reason = step_.state.reasons[i];
      if (!update(&reason, (*sample.throttle & bit) != 0, config_.act_after, config_.relax_after)) continue;
      record((reason.on ? "throttled: " : "no longer throttled: ") + throttle::reasons(bit).front(),
             (bit & (throttle::kAnyHeat | throttle::kFaults)) == 0);
    }
  }

  // How much a count has grown; one that became smaller was set back.
  static std::uint64_t growth(std::optional<std::uint64_t>* last, const std::optional<std::uint64_t>& now) {
    if (!now) return 0;
    const std::uint64_t grown = *last && *now > **last ? *now - **last : 0;
    *last = now;
    return grown;
  }

  void watch_errors(const Vitals& sample) {
    State& s = step_.state;
    if (const auto more = growth(&s.corrected, sample.ecc_volatile.corrected); more > 0)
      record(std::to_string(more) + " corrected memory errors");
    if (const auto more = growth(&s.uncorrected, sample.ecc_volatile.uncorrected); more > 0) {
      record(std::to_string(more) + " uncorrected memory errors");
      if (++s.strikes >= config_.strikes) take_out("uncorrected memory errors, again and again");
    }
  }

  void watch_heat(const Vitals& sample) {
    State& s = step_.state;
    if (s.out) return;
    const Heat heat = heat_of(config_, sample);
    if (heat == Heat::kUnknown) return;
    s.hot = heat == Heat::kHot ? s.hot + 1 : 0;
    s.cool = heat == Heat::kCool ? s.cool + 1 : 0;
    if (s.relax_needed == 0) s.relax_needed = config_.relax_after;
    if (s.relaxed) ++s.since_relaxed;
    if (s.hot >= (s.level == 0 ? config_.act_after : config_.step_after) && s.level < kLevels) {
      // A step back that had to be taken again came too early.
      if (s.relaxed && s.since_relaxed <= s.relax_needed)
        s.relax_needed = std::min(2 * s.relax_needed, config_.relax_most);
      s.relaxed = false;
      go_to(s.level + 1);
    } else if (s.level > 0 && s.cool >= s.relax_needed) {
      s.relaxed = true;
      s.since_relaxed = 0;
      go_to(s.level - 1);
    } else if (s.level == 0 && s.cool >= config_.relax_most) {
      s.relax_needed = config_.relax_after;
    }
  }

  void go_to(int level) {
    State& s = step_.state;
    const int before = s.level;
    s.level = level;
    s.hot = s.cool = 0;
    char text[64];
    std::snprintf(text, sizeof text, "too hot: step %d of %d", level, kLevels);
    record(level == 0 ? "cool again" : level > before ? text : "cooler: a step back");
    step_.actions.push_back({ActionKind::kHoldLow, kRatios[level], "", false});
    // A job cannot work on nothing: below half a batch it is the cap that helps.
    step_.actions.push_back({ActionKind::kBatchHint, std::max(kRatios[level], 0.25), "", false});
    if (config_.allow_clock_control && (before >= kClockLevel) != (level >= kClockLevel))
      step_.actions.push_back(
          {ActionKind::kLockClocks, level >= kClockLevel ? config_.clock_ratio_percent / 100.0 : 1, "", false});
  }

  const Config& config_;
  Step step_;
};

}  // namespace

Step step(const Config& config, const State& before, const Vitals& sample) {
  return Stepper(config, before).run(sample);
}

std::vector<std::vector<Action>> replay(const Config& config, const std::vector<Vitals>& history) {
  std::vector<std::vector<Action>> actions;
  State state;
  for (const Vitals& sample : history) {
    Step next = step(config, state, sample);
    state = next.state;
    actions.push_back(std::move(next.actions));
  }
  return actions;
}

std::vector<std::string> throttled(const State& state) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < std::size(state.reasons); ++i) {
    if (state.reasons[i].on) bits |= std::uint64_t{1} << i;
  }
  return throttle::reasons(bits);
}

}  // namespace sluice::health::guard
