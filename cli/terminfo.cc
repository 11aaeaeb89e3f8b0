#include "terminfo.h"

#include <curses.h>
#include <unistd.h>
// Behind <curses.h>, whose types it needs.
#include <term.h>

#include <cstdlib>

namespace sluice::cli {

Status check_terminal() {
  const char* name = std::getenv("TERM");
  if (name == nullptr) name = "";
  int found = 0;
  if (setupterm(nullptr, STDOUT_FILENO, &found) != OK)
    return Status::error(Code::kUnavailable, "the terminal '%.40s' is not known here", name);
  const char* move = tigetstr("cup");
  const bool can_move = move != nullptr && move != reinterpret_cast<char*>(-1);
  del_curterm(cur_term);
  return can_move ? Status() : Status::error(Code::kUnavailable, "the terminal '%.40s' has no cursor to move", name);
}

}  // namespace sluice::cli
