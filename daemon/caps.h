// The cap on low jobs of a card that is too hot: they run for a part of every cycle and are held for the rest, all
// together, so that the GPU gets to rest. Pure.
#pragma once

#include <cstdint>

#include "sluice/base/clock.h"
#include "sluice/policy.h"

namespace sluice::daemon {

// As short as a turn of the smallest share: no program notices more than it notices its equals.
inline constexpr std::uint64_t kCapCycleNs = 10 * kNanosPerMilli;

// Adds to the decision. Returns when to look again at the latest, on the snapshot's clock; never where nothing is
// capped.
std::uint64_t cap(const policy::Snapshot& view, double low_ratio, policy::Decision* decision);

}  // namespace sluice::daemon
