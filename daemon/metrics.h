// The daemon's status as Prometheus' metrics; docs/metrics.md has their names. Pure.
#pragma once

#include <string>

#include "sluice/control.h"

namespace sluice::daemon {

// `status` is the reply to "status". What is not known has no sample.
std::string metrics_text(const control::Json& status);

}  // namespace sluice::daemon
