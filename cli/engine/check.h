// The optimised model against the unfused FP32 reference, value by value.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "arrays.h"
#include "progress.h"

namespace sluice::cli {

struct Drift {
  std::size_t step = 0;  // of the optimised program
  std::string node, op;  // the step that computed it; empty for an output that no step computes
  std::string value;     // the tensor's name
  double error = 0;
};

struct CheckResult {
  std::size_t compared = 0;    // tensors that both programs compute under the same name, outputs included
  std::size_t uncompared = 0;  // results of the optimised program that the reference does not have, or not to be seen
  std::string worst;           // the tensor with the largest error
  double worst_error = 0;
  std::optional<Drift> first;  // in the order of running: the first one over the tolerance
};

// ||ours - reference|| / ||reference|| in double precision; 0 where both are all zero; infinite where shapes differ, or
// where one has a NaN or an infinity and the other something else.
double relative_error(std::span<const double> ours, std::span<const double> reference);

// Runs `model` and, with the same inputs, the file it came from without any pass in FP32. Keeps a copy of each
// reference tensor that is compared. Errors: as Model::load and Session::run.
Result<CheckResult> check_against_reference(const engine::Model& model, engine::Session& session,
                                            const std::string& path, const std::vector<Array>& inputs, double tolerance,
                                            Progress& progress);

// Binds all inputs, in the model's order.
Status bind_inputs(const engine::Model& model, engine::Session& session, const std::vector<Array>& inputs);

}  // namespace sluice::cli
