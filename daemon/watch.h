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
  std::map<std::string, health::guard::State> cards_;  // by UUID
};

// How a card is now, for the guard; a card that is gone is a lost one.
health::Vitals pulse_of(const health::Nvml& nvml, const std::string& uuid);

}  // namespace sluice::daemon
