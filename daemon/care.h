// What is done about each card that is not well, as the guard (health.h) has asked for it; plain data.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sluice::daemon {

struct Care {
  double low_ratio = 1;                // of the GPU's time that low jobs may have; 1: no cap
  double batch_ratio = 1;              // of its batch that a job should take; 1: all
  unsigned clocks_mhz = 0;             // locked at that; 0: not locked
  std::vector<std::string> throttled;  // why the clocks are held down, in words
};
using Cares = std::map<std::string, Care>;  // by UUID

// Jobs below `normal` are low.
inline constexpr int kLowBelow = 50;

}  // namespace sluice::daemon
