// What bench_contention was asked to measure: the command line and the file of jobs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::bench {

struct JobSpec {
  std::string name;
  std::int32_t priority = 50;
  std::uint32_t share = 1;
  std::vector<std::string> command;  // "{repeat}" in an argument becomes the number of the repetition, from 1
  std::map<std::string, std::string> environment;
  std::string working_directory;         // "": the caller's
  unsigned sm_percentage = 0;            // with --mps: of the SMs; 0: no cap
  std::vector<std::string> run_options;  // further ones of `sluice run`: --leave-below, --linger
};

struct Options {
  std::vector<JobSpec> jobs;  // in falling order of priority; names differ
  std::string out = "out/demo";
  std::string sluice;  // the program, by default the one beside this one
  int repeats = 3;
  double seconds = 0;  // of measuring in a run, in the device's time; 0: decided by default_seconds()
  double ready_seconds = 60;
  double scale = 0;  // of the emulator; 0: SLUICE_EMU_SCALE, else kDefaultScale
  bool emulated = false;
  bool mps = false;
  bool json = false;
};

inline constexpr double kDefaultScale = 8;  // slow enough that a busy machine of two cores does not show in the result

// A run's length when none was given: long enough for the tail on a card, short enough for a demo on the emulator.
double default_seconds(bool simulated, double scale);

// Splits a command line as a shell does, without expansions: blanks, quotes, backslashes.
// Errors: kInvalidArgument for an open quote or an empty command.
Result<std::vector<std::string>> split_command(std::string_view text);

// "high", "normal", "low" or a whole number from -1000 to 1000. Errors: kInvalidArgument.
Result<std::int32_t> parse_priority(std::string_view text);

// [[job]] tables as `sluice run` takes them; `gpu`, `duration` and `mps` are accepted and unused here.
// Errors: kInvalidArgument with the line.
Result<std::vector<JobSpec>> load_jobs(const std::string& path);

// The default jobs: the two examples, found in `bin_directory`.
std::vector<JobSpec> example_jobs(const std::string& bin_directory);

// Sorts by falling priority, gives unnamed jobs names and makes names differ.
void name_and_sort(std::vector<JobSpec>* jobs);

// Fills `options` from the command line. Returns the exit code if the program should end now (help, bad usage).
std::optional<int> parse_command_line(int argc, char** argv, const std::string& bin_directory, Options* options);

}  // namespace sluice::bench
