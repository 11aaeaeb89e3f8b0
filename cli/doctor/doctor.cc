// sluice doctor: is the machine well?
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../completion.h"
#include "../installation.h"
#include "../output.h"
#include "../verbs.h"
#include "collect.h"
#include "topics.h"
#include "view.h"

namespace sluice::cli {
namespace {

using namespace doctor;

bool wants_colours() {
  const char* none = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (none == nullptr || *none == '\0') && terminal != nullptr &&
         std::strcmp(terminal, "dumb") != 0;
}

int examine(std::vector<std::string> args) {
  bool as_json = false;
  std::string root;
  CLI::App app("Says what is wrong with the GPUs, the driver and the machine, and what to do about it.", "doctor");
  set_usage(
      app,
      "Usage: sluice doctor [OPTIONS]\n       sluice doctor bandwidth [OPTIONS]\n       sluice doctor ecc [OPTIONS]");
  app.add_flag("--json", as_json, "As JSON; docs/doctor.md has the keys");
  app.add_option("--root", root, "Read DIR/proc, DIR/sys and DIR/dev instead of the machine's")->option_text("DIR");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  const Facts facts = collect(find_installation(), roots_at(root));
  const std::vector<Finding> findings = judge(facts);
  if (as_json) {
    print_json(to_json(facts, findings));
  } else {
    std::fputs(to_text(facts, findings, wants_colours()).c_str(), stdout);
  }
  if (without_driver(findings)) return kExitNoDevice;
  const auto is_fault = [](const Finding& finding) { return finding.severity != Severity::kNote; };
  return std::any_of(findings.begin(), findings.end(), is_fault) ? kExitFailed : kExitOk;
}

}  // namespace

int doctor_verb(std::vector<std::string> args) {
  const bool completes = !args.empty() && args.front() == kCompleteVerb;
  const std::size_t first = completes ? 1 : 0;
  for (const Topic& topic : topics()) {
    if (args.size() <= first || args[first] != topic.name) continue;
    if (completes && args.size() == first + 1) break;  // the word itself is still being typed
    args.erase(args.begin() + static_cast<std::ptrdiff_t>(first));
    return topic.main(std::move(args));
  }
  if (completes && args.size() == first + 1 && !args.back().starts_with('-')) {
    std::vector<Suggestion> words;
    for (const Topic& topic : topics()) words.push_back({topic.name, topic.summary});
    print_suggestions(words, args.back());
    return kExitOk;
  }
  return examine(std::move(args));
}

}  // namespace sluice::cli
