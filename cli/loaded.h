// Remembers, in the runtime directory, that the test-load of the shim went well, so that it is done once and not for
// every job: it costs as much as the rest of the start. Not thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "environment.h"
#include "sluice/base/status.h"

namespace sluice::cli {

// test_load() of probe.h, unless it went well before with the same three files (by inode, size and time of change) and
// the same variables of the loader. Errors: those of test_load; nothing is remembered of them.
Status test_load_once(const std::string& runtime_dir, const std::string& program, const std::string& shim,
                      const std::string& driver, Environment environment, std::uint64_t timeout_ns);

}  // namespace sluice::cli
