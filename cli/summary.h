// What `sluice run` says about a job when it has ended: one line, and the same as JSON. Pure; thread safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sluice/board.h"

namespace sluice::cli {

struct JobOutcome {
  std::uint64_t id = 0;  // 0: it ran without Sluice
  std::string name;
  int priority = 0;
  unsigned share = 1;
  std::vector<std::string> devices;  // UUIDs
  bool simulated = false;
  bool mps = false;    // its processes were clients of MPS
  std::string bypass;  // why it ran without Sluice, "" if it did not
  int exit_code = 0;
  int signal = 0;  // that ended the command, 0 if none
  bool duration_reached = false;
  std::uint64_t wall_ns = 0;
  std::uint64_t waited_ns = 0;  // for its memory, before it started
  std::uint64_t quantum_ns = board::kDefaultQuantumNs;
  board::JobTotals totals{};
  std::vector<std::string> unseen;  // processes that held a GPU context without the shim, with the reason
};

// Without the "sluice: " in front and without a newline.
std::string summary_line(const JobOutcome& outcome);

// Keys as documented in docs/cli.md; what is not known is null.
nlohmann::json outcome_json(const JobOutcome& outcome);

// 81234567 as "81,234,567".
std::string grouped(std::uint64_t number);

}  // namespace sluice::cli
