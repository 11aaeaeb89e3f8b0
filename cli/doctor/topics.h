// What may stand behind `sluice doctor`, a source file each.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli::doctor {

struct Topic {
  const char* name;
  const char* summary;
  int (*main)(std::vector<std::string> args);  // behind its name; returns the exit code
};
const std::vector<Topic>& topics();

// sluice doctor bandwidth: how fast bytes move, measured.
int bandwidth_topic(std::vector<std::string> args);

// sluice doctor ecc: the counts of memory errors, and setting them back.
int ecc_topic(std::vector<std::string> args);

}  // namespace sluice::cli::doctor
