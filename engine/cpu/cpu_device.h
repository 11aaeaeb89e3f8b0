// The CPU as a device.
#pragma once

#include <memory>

#include "device.h"

namespace sluice::engine::cpu {

// `threads`: 0 for one a physical core that this process may use. Errors: kInvalidArgument.
Result<std::shared_ptr<Device>> open(int threads);

// Physical cores in this process's affinity mask; at least 1.
int physical_cores();

}  // namespace sluice::engine::cpu
