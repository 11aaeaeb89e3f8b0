// The terminal that `sluice top` fills, by ncurses. One instance a process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sluice/base/status.h"
#include "top_screen.h"

namespace sluice::cli {

class TopTerminal {
 public:
  enum class Key { kNone, kUp, kDown, kPageUp, kPageDown, kHigh, kNormal, kLow, kMore, kLess, kResized, kQuit };

  // Takes the terminal over. Errors: kUnavailable, with the reason, where it cannot be drawn on.
  static Result<std::unique_ptr<TopTerminal>> open();
  ~TopTerminal();  // gives it back as it was
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  int columns() const;
  int rows() const;
  void draw(const std::vector<TopLine>& lines);
  // The next key, or kNone after `timeout_ns`. kQuit for SIGINT, SIGTERM and SIGHUP too.
  Key wait(std::uint64_t timeout_ns);

 private:
  explicit TopTerminal(void* screen) : screen_(screen) {}
  void* screen_;  // ncurses' SCREEN
};

}  // namespace sluice::cli
