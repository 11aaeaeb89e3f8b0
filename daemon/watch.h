// Looks after the cards that jobs use, about once a second: writes down what happens to them, and keeps what the guard
// (health.h) wants done about them. Not thread safe: the sampler's thread has it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "care.h"
#include "clock_guardian.h"
#include "sluice/health.h"

namespace sluice::daemon {

class Watch {
 public:
  // Clocks are locked only where the guardian was started. It outlives this.
  explicit Watch(ClockGuardian* clocks) : clocks_(clocks) { config_.allow_clock_control = clocks->started(); }

  // One sample of each of these cards; those that are no longer named are forgotten, and their clocks set free.
  void look(const health::Nvml& nvml, const std::vector<std::string>& uuids);

  const Cares& cares() const { return cares_; }
  // Cards that are to be taken out of use since the last call, and why.
  std::map<std::string, std::string> take_out() { return std::exchange(out_, {}); }

 private:
  void carry_out(const std::string& uuid, const health::guard::Action& action, const health::Nvml& nvml);
  void set_clocks(const std::string& uuid, double ratio, const health::Nvml& nvml);

  ClockGuardian* const clocks_;
  health::guard::Config config_;
  struct Card {
    health::guard::State state;
    bool was_there = false;  // it has answered once
  };
  std::map<std::string, Card> cards_;  // by UUID
  Cares cares_;
  std::map<std::string, std::string> out_;
};

// How a card is now, for the guard. One that was there before and is not found any more is a lost one.
health::Vitals pulse_of(const health::Nvml& nvml, const std::string& uuid, bool was_there);

}  // namespace sluice::daemon
