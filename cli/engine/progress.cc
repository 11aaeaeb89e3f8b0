#include "progress.h"

#include <unistd.h>

#include <cstdio>

namespace sluice::cli {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}
Progress::~Progress() { clear(); }

void Progress::show(const std::string& text) {
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    shown_ = true;
  }
}

void Progress::clear() {
  if (shown_) {
    std::fputs("\r\033[K", stderr);
    shown_ = false;
  }
}

}  // namespace sluice::cli
