// The test-load of the shim, in a process of its own: whatever a broken shim or driver does there, the job is safe.
#pragma once

#include <cstdint>
#include <string>

#include "environment.h"
#include "sluice/base/status.h"

namespace sluice::cli {

inline constexpr char kProbeVerb[] = "__probe";

// Runs `program __probe SHIM` in `environment`, the one that the job would get. Ok when the shim can be loaded there
// and reaches the driver. Errors: kFailedPrecondition with the reason; kDeadlineExceeded.
Status test_load(const std::string& program, const std::string& shim, Environment environment,
                 std::uint64_t timeout_ns);

// The verb's body: prints a reason and returns 1, or prints nothing and returns 0.
int probe(const std::string& shim);

}  // namespace sluice::cli
