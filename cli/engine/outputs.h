// What a run computed, for people, for programs and into files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arrays.h"

namespace sluice::cli {

// All outputs of the last run, in the model's order.
Result<std::vector<NamedView>> all_outputs(const engine::Model& model, const engine::Session& session);

// A row an output: name, dtype, shape, min, mean, max, first values.
std::string outputs_table(const std::vector<NamedView>& outputs);
// The same as [{"name", "dtype", "shape", "min", "mean", "max", "first"}]; what is not finite is null.
nlohmann::json outputs_json(const std::vector<NamedView>& outputs);

// `files`: NAME=FILE.npy, or FILE.npy for the only output. Errors: kInvalidArgument.
Status write_outputs(const std::vector<NamedView>& outputs, const std::vector<std::string>& files);

}  // namespace sluice::cli
