// lib/sluice/engine: what `sluice infer` and `sluice optimize` become, with the same arguments.
#include <cstdio>
#include <string>
#include <vector>

#include "../output.h"
#include "engine_verbs.h"
#include "sluice/base/status.h"

int main(int argc, char** argv) {
  using namespace sluice;
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  const std::string verb = args.empty() ? "" : args[0];
  const std::vector<std::string> rest(args.begin() + (args.empty() ? 0 : 1), args.end());
  int code = kExitUsage;
  if (verb == "infer") {
    code = cli::infer(rest);
  } else if (verb == "optimize") {
    code = cli::optimize_model(rest);
  } else {
    cli::say("this program belongs to sluice; see sluice help");
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == kExitOk) {
    cli::say("cannot write to standard output");
    return kExitFailed;
  }
  return code;
}
