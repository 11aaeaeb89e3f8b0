// sluice top: the GPUs and the jobs with rates, again and again.
#include <unistd.h>

#include <cstdio>

#include "output.h"
#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "status_view.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

void print(const nlohmann::json& status, bool clear) {
  std::string screen = clear ? "\033[H\033[2J" : "";
  if (const std::string devices = devices_table(status); !devices.empty()) screen += devices + "\n";
  screen += jobs_table(status);
  if (const std::string unmanaged = unmanaged_table(status); !unmanaged.empty()) screen += "\n" + unmanaged;
  std::fputs(screen.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

int top_verb(std::vector<std::string> args) {
  bool as_json = false, once = false;
  std::string interval_text = "1s";
  CLI::App app("Shows the GPUs and the jobs with their rates; ends on Ctrl-C.", "top");
  set_usage(app, "Usage: sluice top [--once] [--json] [--interval TIME]");
  app.add_flag("--once", once, "One picture, over one interval, then end");
  app.add_flag("--json", as_json, "As JSON: one object with --once, else one a line");
  app.add_option("-i,--interval", interval_text, "Time between two samples (1s)")->option_text("TIME");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  Result<std::uint64_t> interval = parse_duration_ns(interval_text);
  if (!interval.ok()) return fail("top", interval.status());
  if (*interval < 50 * kNanosPerMilli) return usage_error("top", "the interval is below 50ms");

  const bool terminal = isatty(STDOUT_FILENO) == 1;
  Result<nlohmann::json> before = fetch_status();
  if (!before.ok()) return fail("top", before.status());
  std::uint64_t before_ns = now_ns();
  for (;;) {
    sleep_ns(*interval);
    Result<nlohmann::json> after = fetch_status();
    if (!after.ok()) return fail("top", after.status());
    const std::uint64_t after_ns = now_ns();
    nlohmann::json shown = *after;
    add_rates(*before, after_ns - before_ns, &shown);
    if (as_json && once) {
      print_json(shown);
    } else if (as_json) {
      std::printf("%s\n", shown.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
      std::fflush(stdout);
    } else {
      print(shown, terminal && !once);
    }
    if (once) return kExitOk;
    if (std::ferror(stdout) != 0) return kExitFailed;  // the reader is gone
    before = std::move(after);
    before_ns = after_ns;
  }
}

}  // namespace sluice::cli
