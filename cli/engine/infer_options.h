// What `sluice infer` was asked to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inputs.h"

namespace sluice::cli {

struct InferOptions {
  std::string model;
  engine::Options engine;
  InputOptions inputs;
  std::vector<std::string> output_files;  // NAME=FILE.npy
  std::string outputs_npz;                // "" for none
  std::string profile;                    // "" for none
  bool bench = false, check = false, json = false;
  double seconds = 3;
  double tolerance = 0;  // of --check, a relative L2 error
};

// Reads the command line. Returns the exit code where the verb is over: --help was printed, or one line said what is
// wrong.
std::optional<int> parse_infer(std::vector<std::string> args, InferOptions& options);

}  // namespace sluice::cli
