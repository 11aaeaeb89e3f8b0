// sluice: many jobs share one GPU by priority.
#include <cstdio>
#include <string>
#include <vector>

#include "completion.h"
#include "output.h"
#include "probe.h"
#include "sluice/base/status.h"
#include "suggest.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

void print_help(std::FILE* out) {
  std::fputs(
      "Many jobs share one NVIDIA GPU: the important one almost as fast as alone, the rest for the others.\n\n"
      "Usage: sluice VERB [OPTIONS]\n\n",
      out);
  for (const Verb& verb : verbs()) std::fprintf(out, "  %-10s%s\n", verb.name, verb.summary);
  std::fputs(
      "\n"
      "  sluice run --priority high -- python serve.py\n"
      "  sluice run --priority low -- python train.py\n\n"
      "sluice VERB --help says more.\n",
      out);
}

int main_of(const std::vector<std::string>& args) {
  if (args.empty()) {
    print_help(stderr);
    return kExitUsage;
  }
  std::string name = args[0];
  std::vector<std::string> rest(args.begin() + 1, args.end());
  if (name == kProbeVerb && rest.size() == 1) return probe(rest[0]);
  if (name == kCompleteVerb) return complete(std::move(rest));
  if (name == "--version" || name == "-V") name = "version";
  if (name == "help" || name == "--help" || name == "-h") {
    if (rest.empty()) {
      print_help(stdout);
      return kExitOk;
    }
    name = rest[0];
    rest = {"--help"};
  }
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    if (name == verb.name) return verb.main(std::move(rest));
    names.emplace_back(verb.name);
  }
  if (name.size() > 1 && name[0] == '-') {
    say("unknown option " + name + " before the verb; see sluice help");
    return kExitUsage;
  }
  const std::string hint = did_you_mean(name, names);
  say("unknown verb '" + name.substr(0, 60) + "'" + (hint.empty() ? "; see sluice help" : hint));
  return kExitUsage;
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) {
  const int code = sluice::cli::main_of(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  // A script that reads what was printed must not take half of it for all.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == sluice::kExitOk) {
    sluice::cli::say("cannot write to standard output");
    return sluice::kExitFailed;
  }
  return code;
}
