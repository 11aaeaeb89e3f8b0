// The daemon's status as `ps` and `top` show it. The formatting is pure; fetch_status is not thread safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "sluice/base/status.h"

namespace sluice::cli {

// The reply to "status" (docs/cli.md has the keys). Without a daemon: an empty one, with "daemon" null; but where jobs
// live on a board, whose daemon must have died, one is started first.
Result<nlohmann::json> fetch_status();

std::string jobs_table(const nlohmann::json& status);       // "no jobs\n" where there are none
std::string devices_table(const nlohmann::json& status);    // "" where there are none
std::string unmanaged_table(const nlohmann::json& status);  // likewise

// Adds to each job of `after` "launches_per_s", "gpu_share_ratio" and "held_ratio" over the time since `before`;
// null where the job is new or a figure is not known.
void add_rates(const nlohmann::json& before, std::uint64_t elapsed_ns, nlohmann::json* after);

}  // namespace sluice::cli
