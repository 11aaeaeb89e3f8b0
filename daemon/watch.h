// Looks after the cards that jobs use, about once a second, and writes down what happens to them. It only records: what
// the guard (health.h) would do about it beyond that is not done here. Not thread safe: the sampler's thread has it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sluice/health.h"

namespace sluice::daemon {

class Watch {
 public:
  // One sample of each of these cards; those that are no longer named are forgotten.
  void look(const health::Nvml& nvml, const std::vector<std::string>& uuids);

 private:
  health::guard::Config config_;
  struct Card {
    health::guard::State state;
    bool was_there = false;  // it has answered once
  };
  std::map<std::string, Card> cards_;  // by UUID
};

// How a card is now, for the guard. One that was there before and is not found any more is a lost one.
health::Vitals pulse_of(const health::Nvml& nvml, const std::string& uuid, bool was_there);

}  // namespace sluice::daemon
