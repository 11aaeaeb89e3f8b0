// sluice top: the GPUs and the jobs with rates, again and again.
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "job_request.h"
#include "output.h"
#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "status_text.h"
#include "status_view.h"
#include "top_screen.h"
#include "top_terminal.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

using nlohmann::json;
using Key = TopTerminal::Key;

constexpr int kPriorityStep = 10;
constexpr int kPriorityLimit = 1000;
constexpr int kPage = 10;

// The status with rates since the one before.
class Rates {
 public:
  Status look() {
    Result<json> now = fetch_status();
    if (!now.ok()) return now.status();
    const std::uint64_t at = now_ns();
    shown_ = *now;
    add_rates(last_, at - last_ns_, &shown_);
    last_ = std::move(*now);
    last_ns_ = at;
    return {};
  }
  const json& shown() const { return shown_; }

 private:
  json last_, shown_;
  std::uint64_t last_ns_ = 0;
};

void print(const json& status) {
  std::string screen;
  if (const std::string devices = devices_table(status); !devices.empty()) screen += devices + "\n";
  screen += jobs_table(status);
  if (const std::string unmanaged = unmanaged_table(status); !unmanaged.empty()) screen += "\n" + unmanaged;
  std::fputs(screen.c_str(), stdout);
  std::fflush(stdout);
}

int print_once(std::uint64_t interval, bool as_json) {
  Rates rates;
  for (int sample = 0; sample < 2; ++sample) {
    if (sample > 0) sleep_ns(interval);
    if (Status status = rates.look(); !status.ok()) return fail("top", status);
  }
  if (as_json) {
    print_json(rates.shown());
  } else {
    print(rates.shown());
  }
  return kExitOk;
}

int print_json_lines(std::uint64_t interval) {
  Rates rates;
  if (Status status = rates.look(); !status.ok()) return fail("top", status);
  while (true) {
    sleep_ns(interval);
    if (Status status = rates.look(); !status.ok()) return fail("top", status);
    std::printf("%s\n", rates.shown().dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return kExitFailed;  // the reader is gone
  }
}

class Top {
 public:
  Top(TopTerminal* terminal, std::uint64_t interval) : terminal_(terminal), interval_(interval) {}

  Status run() {
    std::uint64_t next = 0;
    while (true) {
      const std::uint64_t now = now_ns();
      if (now >= next) {
        if (Status status = rates_.look(); !status.ok()) return status;
        next = now + interval_;
      }
      terminal_->draw(top_lines(rates_.shown(), state_, terminal_->columns(), terminal_->rows()));
      const std::uint64_t before = now_ns();
      const Key key = terminal_->wait(next > before ? next - before : 0);
      if (key == Key::kQuit) return {};
      if (key != Key::kNone && key != Key::kResized) {
        state_.message.clear();
        press(key);
      }
    }
  }

 private:
  void press(Key key) {
    switch (key) {
      case Key::kUp:
        return move_selection(rates_.shown(), -1, &state_);
      case Key::kDown:
        return move_selection(rates_.shown(), 1, &state_);
      case Key::kPageUp:
        return move_selection(rates_.shown(), -kPage, &state_);
      case Key::kPageDown:
        return move_selection(rates_.shown(), kPage, &state_);
      case Key::kHigh:
        return change([](int) { return 100; });
      case Key::kNormal:
        return change([](int) { return 50; });
      case Key::kLow:
        return change([](int) { return 0; });
      case Key::kMore:
        return change([](int priority) { return std::min(priority + kPriorityStep, kPriorityLimit); });
      case Key::kLess:
        return change([](int priority) { return std::max(priority - kPriorityStep, -kPriorityLimit); });
      default:
        return;
    }
  }

  template <class To>
  void change(To to) {
    for (const json& job : shown::list_at(rates_.shown(), "jobs")) {
      const json &id = shown::at(job, "id"), &priority = shown::at(job, "priority");
      if (!state_.selected || id != *state_.selected || !priority.is_number_integer()) continue;
      const int wanted = to(priority.get<int>());
      char runtime_dir[PATH_MAX];
      Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir);
      if (status.ok())
        status = control::request(runtime_dir, {{"op", "set_priority"}, {"job", id}, {"priority", wanted}}).status();
      state_.message = status.ok() ? "job " + id.dump() + " is " + priority_name(wanted) + " now" : status.message();
      if (status.ok()) status = rates_.look();
      return;
    }
    state_.message = "select a job with the arrows first";
  }

  TopTerminal* const terminal_;
  const std::uint64_t interval_;
  Rates rates_;
  TopState state_;
};

}  // namespace

int top_verb(std::vector<std::string> args) {
  bool as_json = false, once = false;
  std::string interval_text = "1s";
  CLI::App app("Shows the GPUs and the jobs with their rates, and changes priorities by a key; q ends it.", "top");
  set_usage(app, "Usage: sluice top [--once] [--json] [--interval TIME]");
  app.add_flag("--once", once, "One picture, over one interval, then end");
  app.add_flag("--json", as_json, "As JSON: one object with --once, else one a line");
  app.add_option("-i,--interval", interval_text, "Time between two samples (1s)")->option_text("TIME");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  const Result<std::uint64_t> interval = parse_duration_ns(interval_text);
  if (!interval.ok()) return fail("top", interval.status());
  if (*interval < 50 * kNanosPerMilli) return usage_error("top", "the interval is below 50ms");
  if (once) return print_once(*interval, as_json);
  if (as_json) return print_json_lines(*interval);

  Status status;
  {
    Result<std::unique_ptr<TopTerminal>> terminal = TopTerminal::open();
    if (!terminal.ok()) {
      say(std::string("top: ") + terminal.status().message() + ": one picture, as with --once");
      return print_once(*interval, false);
    }
    status = Top(terminal->get(), *interval).run();
  }
  return status.ok() ? kExitOk : fail("top", status);
}

}  // namespace sluice::cli
