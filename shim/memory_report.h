// Says who holds what of a GPU's memory, once a job: the job that asked, the others of this GPU's board, and the rest.
#pragma once

#include <cstdint>

#include "session.h"

namespace sluice::shim {

enum class Shortage {
  kLimit,   // the job's own limit
  kDevice,  // the card has no more
};

// On standard error, at the job's first shortage on this GPU; nothing if SLUICE_LOG=error. May call the driver.
void report_memory(Session* session, std::uint64_t bytes, Shortage shortage);

}  // namespace sluice::shim
