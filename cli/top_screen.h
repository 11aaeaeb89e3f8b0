// What the full-screen `sluice top` shows: from the daemon's status and a size to lines. Pure; thread safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

struct TopState {
  std::optional<std::uint64_t> selected;  // a job's id
  std::string message;                    // in place of the keys, such as what a change of priority came to
};

struct TopLine {
  enum class Look { kPlain, kHeading, kSelected, kBad };
  std::string text;  // at most as many characters as there are columns; no control characters
  Look look = Look::kPlain;
};

// The jobs in the order they are shown: highest priority first, then the oldest.
std::vector<std::uint64_t> top_order(const nlohmann::json& status);

// Moves the selection by `by` jobs; the first move, and one of a job that is gone, selects the first.
void move_selection(const nlohmann::json& status, int by, TopState* state);

// At most `rows` lines, the last one with the keys. Cards come first; where not all jobs fit, those around the selected
// one are shown.
std::vector<TopLine> top_lines(const nlohmann::json& status, const TopState& state, int columns, int rows);

}  // namespace sluice::cli
