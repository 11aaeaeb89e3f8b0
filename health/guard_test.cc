// The guard on series of samples that the fake NVML plays (health/series), and in a loop with a card that warms up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "sluice/health.h"

namespace sluice::health::guard {
namespace {

constexpr char kCard[] = "GPU-20000000-0000-0000-0000-000000000001";

// The first `samples` of a series, read through NVML's own calls.
std::vector<Vitals> series(const std::string& name, int samples) {
  setenv("SLUICE_FAKE_NVML", (SERIES "/" + name + ".toml").c_str(), 1);
  const auto nvml = Nvml::open(FAKE_NVML);
  unsetenv("SLUICE_FAKE_NVML");
  EXPECT_TRUE(nvml.ok()) << nvml.status().message();
  std::vector<Vitals> history;
  for (int i = 0; i < samples; ++i) {
    setenv("SLUICE_FAKE_NVML_STEP", std::to_string(i).c_str(), 1);
    const auto sample = (*nvml)->pulse(kCard);
    EXPECT_TRUE(sample.ok());
    history.push_back(*sample);
  }
  unsetenv("SLUICE_FAKE_NVML_STEP");
  return history;
}

// "SAMPLE:ACTION" of each action, in short.
std::vector<std::string> told(const Config& config, const std::vector<Vitals>& history) {
  std::vector<std::string> all;
  const auto actions = replay(config, history);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    for (const Action& action : actions[i]) {
      const std::string ratio = std::to_string(static_cast<int>(action.ratio * 100));
      const char* const names[] = {"record ", "hold ", "batch ", "clocks ", "out "};
      const bool is_text = action.kind == ActionKind::kRecord || action.kind == ActionKind::kTakeOut;
      all.push_back(std::to_string(i) + ":" + names[static_cast<int>(action.kind)] + (is_text ? action.text : ratio));
    }
  }
  return all;
}

using Strings = std::vector<std::string>;

TEST(Guard, NothingIsDoneWhileHealthy) {
  // Warm, with a single reading at the limit now and then, idle at times, and at the power cap for one sample.
  EXPECT_EQ(told({}, series("healthy", 200)), Strings());
}

TEST(Guard, HeatIsMetAtTheSecondSampleAndLetGoOnce) {
  // Hot (84 C and more; the hardware slows down at 87 C) at samples 4, 6 and 7, cool (76 C) from sample 20 on.
  EXPECT_EQ(told({}, series("heat", 120)), (Strings{"7:record too hot: step 1 of 3", "7:hold 50", "7:batch 50",
                                                    "49:record cool again", "49:hold 100", "49:batch 100"}));
}

TEST(Guard, StepByStepToHoldingAll) {
  std::vector<Vitals> history = series("heat", 7);
  history.resize(60, history[6]);  // stays hot
  EXPECT_EQ(told({}, history),
            (Strings{"7:record too hot: step 1 of 3", "7:hold 50", "7:batch 50", "17:record too hot: step 2 of 3",
                     "17:hold 25", "17:batch 25", "27:record too hot: step 3 of 3", "27:hold 0", "27:batch 25"}));
}

TEST(Guard, ClocksOnlyWhereItIsAllowed) {
  Config config;
  config.allow_clock_control = true;
  std::vector<Vitals> history = series("heat", 7);
  history.resize(20, history[6]);
  history.resize(90, history[0]);
  Strings clocks;
  for (const std::string& line : told(config, history)) {
    if (line.find(":clocks") != std::string::npos) clocks.push_back(line);
  }
  EXPECT_EQ(clocks, (Strings{"17:clocks 70", "49:clocks 100"}));
}

TEST(Guard, ThrottlingByHeatCountsAsHeat) {
  std::vector<Vitals> history = series("healthy", 3);
  for (const std::uint64_t bits :
       {throttle::kHeat, throttle::kHardwareHeat, throttle::kPowerBrake, throttle::kHardware}) {
    history[1].throttle = history[2].throttle = bits;
    const Strings lines = told({}, history);
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0], "2:record throttled: " + throttle::reasons(bits).front());
    EXPECT_EQ(lines[2], "2:hold 50");
  }
}

TEST(Guard, APowerCapIsWrittenDownOnceHoweverItFlickers) {
  // From sample 2 to 59 the cap is there for two samples of three, then no more.
  EXPECT_EQ(told({}, series("power_cap", 120)),
            (Strings{"3:record throttled: power cap", "89:record no longer throttled: power cap"}));
}

TEST(Guard, ALostCardIsTakenOutForGood) {
  std::vector<Vitals> history = series("lost_at_3", 8);
  history.push_back(history[0]);  // even if it answers again
  EXPECT_EQ(told({}, history), Strings{"4:out the card has fallen off the bus"});
  history[4] = history[6] = history[7] = history[0];
  EXPECT_EQ(told({}, history), Strings()) << "single lost samples may be mistakes";
}

TEST(Guard, NewMemoryErrorsAreWrittenDownOldOnesAreNot) {
  // Uncorrected: 2 from the start, 3 at sample 4, set back at 6, then 1 and 2.
  std::vector<Vitals> history = series("ecc_grows", 12);
  history[8].temperature_c = history[9].temperature_c = 90;  // a card that was taken out is not cared for
  EXPECT_EQ(told({}, history), (Strings{"2:record 5 corrected memory errors", "4:record 1 uncorrected memory errors",
                                        "7:record 1 uncorrected memory errors", "9:record 1 uncorrected memory errors",
                                        "9:out uncorrected memory errors, again and again"}));
}

TEST(Guard, WhatIsNotToldChangesNothing) {
  std::vector<Vitals> history = series("heat", 8);
  ASSERT_EQ(told({}, history).size(), 3u);
  std::vector<Vitals> silent(600);
  history.insert(history.end(), silent.begin(), silent.end());
  EXPECT_EQ(told({}, history).size(), 3u);  // no news is no reason to let go
  EXPECT_EQ(told({}, silent), Strings());
}

TEST(Guard, GoodAndBadSamplesCountInARow) {
  Vitals hot, cool, between, silent, lost;
  hot.slowdown_c = cool.slowdown_c = between.slowdown_c = 87;
  hot.temperature_c = 90;
  cool.temperature_c = 50;
  between.temperature_c = 80;
  lost = hot;
  lost.lost = true;
  EXPECT_EQ(told({}, {hot, silent, hot}).size(), 3u) << "what is not told does not interrupt";
  EXPECT_EQ(told({}, {hot, lost, cool}), Strings()) << "nothing is believed of a lost card";
  std::vector<Vitals> history(2, hot);
  history.insert(history.end(), 29, cool);
  history.push_back(between);
  history.insert(history.end(), 29, cool);
  EXPECT_EQ(told({}, history).size(), 3u);
  history.push_back(cool);
  EXPECT_EQ(told({}, history).size(), 6u);
}

TEST(Guard, WhatACardAtWorkDoesIsRoutine) {
  for (int bit = 1; bit < 9; ++bit) {
    Vitals sample;
    sample.throttle = std::uint64_t{1} << bit;
    const auto actions = replay({}, {sample, sample});
    ASSERT_FALSE(actions[1].empty());
    EXPECT_EQ(actions[1][0].routine, (*sample.throttle & (throttle::kAnyHeat | throttle::kFaults)) == 0) << bit;
  }
}

TEST(Guard, IsAFunctionOfItsArguments) {
  const std::vector<Vitals> history = series("heat", 120);
  EXPECT_EQ(told({}, history), told({}, history));
  State state;
  const Step first = step({}, state, history[0]);
  EXPECT_EQ(state.cool, 0u);
  EXPECT_EQ(first.state.cool, 1u);
}

// A card that gets hot while the low jobs have all of the GPU, and cools when they have half.
struct Loop {
  double temperature = 60;
  double cap = 1;
  Vitals sample() {
    const double end = cap > 0.6 ? 92 : 70;
    temperature += (end - temperature) * 0.1;
    Vitals v;
    v.temperature_c = static_cast<unsigned>(temperature);
    v.slowdown_c = 87;
    return v;
  }
};

TEST(Guard, WhatItsOwnActionCoolsIsNoReasonToSwing) {
  const Config config;
  Loop card;
  State state;
  std::vector<int> changes;
  const int samples = 2 * 3600;
  for (int i = 0; i < samples; ++i) {
    Step next = step(config, state, card.sample());
    state = next.state;
    for (const Action& action : next.actions) {
      if (action.kind != ActionKind::kHoldLow || action.ratio == card.cap) continue;
      card.cap = action.ratio;
      changes.push_back(i);
    }
    EXPECT_LT(card.temperature, 88);
  }
  ASSERT_GT(changes.size(), 4u);
  // Each time that it lets go too early it waits twice as long the next time, up to relax_most.
  unsigned wanted = config.relax_after;
  for (std::size_t i = 1; i < changes.size(); i += 2) {
    EXPECT_GE(changes[i] - changes[i - 1], static_cast<int>(wanted)) << i;
    EXPECT_LE(changes[i] - changes[i - 1], static_cast<int>(config.relax_most + 60)) << "beside the time to cool";
    wanted = std::min(2 * wanted, config.relax_most);
  }
  EXPECT_LE(changes.size(), 2 * (5 + samples / config.relax_most));
}

TEST(Guard, LongQuietMakesItForgetThatItLetGoTooEarly) {
  Vitals hot, cool;
  hot.slowdown_c = cool.slowdown_c = 87;
  hot.temperature_c = 90;
  cool.temperature_c = 50;
  // How long it holds after this history and two hot samples.
  const auto holds = [&](std::vector<Vitals> history) {
    history.insert(history.end(), 2, hot);
    const std::size_t acted = history.size() - 1;
    history.insert(history.end(), 200, cool);
    const auto actions = replay({}, history);
    EXPECT_EQ(actions[acted].size(), 3u);
    for (std::size_t i = acted + 1; i < actions.size(); ++i) {
      if (!actions[i].empty()) return i - acted;
    }
    return std::size_t{0};
  };
  std::vector<Vitals> history;
  EXPECT_EQ(holds(history), 30u);
  history.insert(history.end(), 2, hot);
  history.insert(history.end(), 30, cool);
  EXPECT_EQ(holds(history), 60u) << "too early once";
  std::vector<Vitals> later = history;
  later.insert(later.end(), 29, cool);
  EXPECT_EQ(holds(later), 30u) << "31 samples after it let go is no longer too early";
  later.pop_back();
  EXPECT_EQ(holds(later), 60u);
  later = history;
  later.insert(later.end(), 12, hot);
  later.insert(later.end(), 59, cool);
  EXPECT_TRUE(replay({}, later).back().empty()) << "the next step up is no other step back that came too early";
  later.push_back(cool);
  EXPECT_EQ(replay({}, later).back().size(), 3u);
  history.insert(history.end(), 2, hot);
  history.insert(history.end(), 60, cool);
  for (const std::size_t quiet : {40u, 58u}) {
    later = history;
    later.insert(later.end(), quiet, cool);
    EXPECT_EQ(holds(later), 120u) << quiet;
  }
  history.insert(history.end(), 480, cool);
  EXPECT_EQ(holds(history), 30u);
}

TEST(Guard, NothingSwingsAtTheEdge) {
  // Right at the limit, up and down by a degree: too short to act. Just below it after acting: not cool enough.
  Vitals over, under;
  over.slowdown_c = under.slowdown_c = 87;
  over.temperature_c = 84;
  under.temperature_c = 83;
  std::vector<Vitals> history;
  for (int i = 0; i < 300; ++i) history.push_back(i % 2 == 0 ? over : under);
  EXPECT_EQ(told({}, history), Strings());
  history.insert(history.begin(), 2, over);
  EXPECT_EQ(told({}, history).size(), 3u);
  // One degree more than relief asks for is cool.
  under.temperature_c = 76;
  history.assign(2, over);
  history.resize(2 + 29, under);
  EXPECT_EQ(told({}, history).size(), 3u);
  history.push_back(under);
  EXPECT_EQ(told({}, history).size(), 6u);
  under.temperature_c = 77;
  history.resize(2);
  history.resize(600, under);
  EXPECT_EQ(told({}, history).size(), 3u);
}

}  // namespace
}  // namespace sluice::health::guard
