#include "top_terminal.h"

#include <ncurses.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdlib>

#include "sluice/base/clock.h"
#include "terminfo.h"

namespace sluice::cli {
namespace {

constexpr short kRedPair = 1;
volatile std::sig_atomic_t g_ended = 0;
void on_signal(int) { g_ended = 1; }

TopTerminal::Key key_of(int code) {
  using Key = TopTerminal::Key;
  switch (code) {
    case KEY_UP:
    case 'k':
      return Key::kUp;
    case KEY_DOWN:
    case 'j':
      return Key::kDown;
    case KEY_PPAGE:
      return Key::kPageUp;
    case KEY_NPAGE:
      return Key::kPageDown;
    case 'h':
      return Key::kHigh;
    case 'n':
      return Key::kNormal;
    case 'l':
      return Key::kLow;
    case '+':
    case '=':
      return Key::kMore;
    case '-':
      return Key::kLess;
    case KEY_RESIZE:
      return Key::kResized;
    case 'q':
    case 'Q':
      return Key::kQuit;
    default:
      return Key::kNone;
  }
}

}  // namespace

Result<std::unique_ptr<TopTerminal>> TopTerminal::open() {
  if (isatty(STDOUT_FILENO) != 1) return Status::error(Code::kUnavailable, "standard output is no terminal");
  if (isatty(STDIN_FILENO) != 1) return Status::error(Code::kUnavailable, "standard input is no terminal");
  std::setlocale(LC_ALL, "");
  // Asked first: ncurses gives back nothing of what it has begun on a terminal that it then refuses.
  if (Status status = check_terminal(); !status.ok()) return status;
  SCREEN* screen = newterm(nullptr, stdout, stdin);
  if (screen == nullptr) return Status::error(Code::kUnavailable, "ncurses refuses the terminal");
  std::unique_ptr<TopTerminal> terminal(new TopTerminal(screen));
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  set_escdelay(25);
  curs_set(0);
  const char* plain = std::getenv("NO_COLOR");
  if ((plain == nullptr || *plain == '\0') && has_colors()) {
    start_color();
    use_default_colors();
    init_pair(kRedPair, COLOR_RED, -1);
  }
  return terminal;
}

TopTerminal::~TopTerminal() {
  endwin();
  delscreen(static_cast<SCREEN*>(screen_));
}

int TopTerminal::columns() const { return getmaxx(stdscr); }
int TopTerminal::rows() const { return getmaxy(stdscr); }

void TopTerminal::draw(const std::vector<TopLine>& lines) {
  erase();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    int look = A_NORMAL;
    if (lines[i].look == TopLine::Look::kHeading) look = A_BOLD;
    if (lines[i].look == TopLine::Look::kSelected) look = A_REVERSE;
    if (lines[i].look == TopLine::Look::kBad) look = A_BOLD | COLOR_PAIR(kRedPair);
    attrset(static_cast<attr_t>(look));
    mvaddstr(static_cast<int>(i), 0, lines[i].text.c_str());
  }
  attrset(A_NORMAL);
  refresh();
}

TopTerminal::Key TopTerminal::wait(std::uint64_t timeout_ns) {
  timeout(static_cast<int>(std::min<std::uint64_t>(timeout_ns / kNanosPerMilli + 1, 60'000)));
  const int code = getch();
  // A terminal that is gone ends every read at once.
  if (g_ended != 0 || (code == ERR && isatty(STDIN_FILENO) != 1)) return Key::kQuit;
  return code == ERR ? Key::kNone : key_of(code);
}

}  // namespace sluice::cli
