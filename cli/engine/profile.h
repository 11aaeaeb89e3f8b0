// Where the time of a run goes: a bar for each fused operator.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "progress.h"
#include "sluice/engine.h"

namespace sluice::cli {

// Runs for `seconds` and at least 10 times, and says what each step took on average:
// {"runs", "latency_us", "steps": [{"index", "name", "op", "kernel", "outputs": [{"dtype", "shape"}], "mean_us",
// "share_ratio"}]}; latency_us is the sum of the steps. Errors: as Session::run.
Result<nlohmann::json> measure_profile(engine::Session& session, double seconds, Progress& progress);

// The profile, with "model", "device", "precision", "batch" and "threads" added, as one HTML file that needs no other.
std::string profile_html(const nlohmann::json& profile);

// Writes FILE.html and, beside it, the same as JSON; returns the name of that. Errors: kInvalidArgument (a file cannot
// be written).
Result<std::string> write_profile(const nlohmann::json& profile, const std::string& path);

}  // namespace sluice::cli
