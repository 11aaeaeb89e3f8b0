// sluice ps: the jobs, and who else is on the GPUs.
#include <cstdio>

#include "output.h"
#include "status_view.h"
#include "verbs.h"

namespace sluice::cli {

int ps_verb(std::vector<std::string> args) {
  bool as_json = false;
  CLI::App app("Lists the jobs, and processes on the GPUs that Sluice does not manage.", "ps");
  set_usage(app, "Usage: sluice ps [--json]");
  app.add_flag("--json", as_json, "As JSON; docs/cli.md has the keys");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  Result<nlohmann::json> status = fetch_status();
  if (!status.ok()) return fail("ps", status.status());
  if (as_json) {
    print_json(*status);
    return kExitOk;
  }
  std::fputs(jobs_table(*status).c_str(), stdout);
  if (const std::string unmanaged = unmanaged_table(*status); !unmanaged.empty())
    std::printf("\n%s", unmanaged.c_str());
  return kExitOk;
}

}  // namespace sluice::cli
