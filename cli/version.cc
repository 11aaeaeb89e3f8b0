// sluice version.
#include <cstdio>

#include "output.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "verbs.h"

namespace sluice::cli {

int version_verb(std::vector<std::string> args) {
  bool as_json = false;
  CLI::App app("Prints the version.", "version");
  set_usage(app, "Usage: sluice version [--json]");
  app.add_flag("--json", as_json, "As JSON");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  if (as_json) {
    print_json(
        {{"version", SLUICE_VERSION}, {"board_version", board::kVersion}, {"protocol_version", control::kProtocol}});
  } else {
    std::printf("sluice %s\n", SLUICE_VERSION);
  }
  return kExitOk;
}

}  // namespace sluice::cli
