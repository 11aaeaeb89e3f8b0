// Runs ONNX's conformance data against the engine. The last line of the output is a JSON object; the exit code is 1 if
// any case is wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>

#include "case.h"

namespace {

using sluice::conformance::Outcome;
using sluice::conformance::Verdict;

struct Counts {
  int passed = 0, refused = 0, wrong = 0;
  void add(Verdict verdict) {
    ++(verdict == Verdict::kPassed ? passed : verdict == Verdict::kRefused ? refused : wrong);
  }
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs ONNX's conformance data against the engine."};
  std::string suite = "node", data, filter;
  sluice::engine::Options options;
  options.threads = 1;
  bool verbose = false;
  app.add_option("--suite", suite, "folder of Debian's libonnx-testdata: node, pytorch-converted, pytorch-operator")
      ->capture_default_str();
  app.add_option("--data", data, "any other folder of cases");
  app.add_option("--filter", filter, "only cases whose name contains this");
  app.add_option("--device", options.device, "device")->capture_default_str();
  app.add_option("--passes-off", options.passes_off, "passes to leave out, or 'all'")->delimiter(',');
  app.add_flag("--verbose,-v", verbose, "a table by operator, and why cases were refused");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? sluice::kExitOk : sluice::kExitUsage;
  }
  data = data.empty() ? sluice::conformance::suite_cases(suite).string() : data;
  if (data.empty() || !std::filesystem::is_directory(data)) {
    fmt::print(stderr, "onnx_conformance: no folder '{}'; install libonnx-testdata or name one with --data\n",
               data.empty() ? suite : data);
    return sluice::kExitUsage;
  }
  Counts all;
  std::map<std::string, Counts> by_operator;
  for (const auto& folder : sluice::conformance::cases_in(data)) {
    const std::string name = folder.filename().string();
    if (name.find(filter) == std::string::npos) {
      continue;
    }
    const Outcome outcome = sluice::conformance::run_case_apart(folder, options);
    all.add(outcome.verdict);
    if (verbose) {
      by_operator[sluice::conformance::operator_of(folder)].add(outcome.verdict);
    }
    if (outcome.verdict == Verdict::kWrong || (verbose && outcome.verdict == Verdict::kRefused)) {
      fmt::print("{}: {}: {}\n", outcome.verdict == Verdict::kWrong ? "wrong" : "refused", name, outcome.message);
    }
  }
  if (verbose) {
    fmt::print("{:<28}{:>8}{:>9}{:>7}\n", "operator", "passed", "refused", "wrong");
    for (const auto& [name, counts] : by_operator) {
      fmt::print("{:<28}{:>8}{:>9}{:>7}\n", name, counts.passed, counts.refused, counts.wrong);
    }
  }
  fmt::print("{{\"passed\": {}, \"refused\": {}, \"wrong\": {}, \"tests\": {}}}\n", all.passed, all.refused, all.wrong,
             all.passed + all.refused + all.wrong);
  return all.wrong > 0 ? sluice::kExitFailed : sluice::kExitOk;
}
