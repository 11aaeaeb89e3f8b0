// The TOML file of `sluice run JOBS.toml`: one [[job]] table a job. Unknown keys are refused, so that a misspelt
// priority does not go unnoticed. Thread safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "job_request.h"
#include "sluice/base/status.h"

namespace sluice::cli {

inline constexpr std::size_t kMostJobs = 64;
inline constexpr std::size_t kLargestJobFile = 1 << 20;  // bytes

// `path` is shown in messages, and its folder is what a relative working_directory counts from.
// Errors: kInvalidArgument, as "PATH:LINE: what and what to do".
Result<std::vector<JobRequest>> parse_job_file(std::string_view text, const std::string& path);

// Errors: as above, and kInvalidArgument when the file cannot be read.
Result<std::vector<JobRequest>> read_job_file(const std::string& path);

}  // namespace sluice::cli
