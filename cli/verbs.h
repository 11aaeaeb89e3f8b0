// The verbs of the command line, one source file each, and what they share. Not thread safe.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sluice::cli {

// Each takes the arguments behind its name and returns the exit code.
int run_verb(std::vector<std::string> args);
int ps_verb(std::vector<std::string> args);
int top_verb(std::vector<std::string> args);
int stop_verb(std::vector<std::string> args);
int doctor_verb(std::vector<std::string> args);
int infer_verb(std::vector<std::string> args);
int optimize_verb(std::vector<std::string> args);
int version_verb(std::vector<std::string> args);

struct Verb {
  const char* name;
  const char* summary;
  int (*main)(std::vector<std::string> args);
};
const std::vector<Verb>& verbs();

// What --help shows as the usage, in place of the parser's own guess.
void set_usage(CLI::App& app, const char* usage);

// Parses `args` into `app`'s options. Returns the exit code where the verb is over: --help was printed, or one line
// said what is wrong.
std::optional<int> parse(CLI::App& app, std::vector<std::string> args);

// Says "VERB: TEXT" and returns kExitUsage.
int usage_error(const std::string& verb, const std::string& text);

}  // namespace sluice::cli
