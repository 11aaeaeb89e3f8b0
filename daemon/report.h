// The reply to "status": see docs/control.md for its keys. Pure but for reading the boards and /proc; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "board_set.h"
#include "care.h"
#include "sampler.h"
#include "sluice/control.h"

namespace sluice::daemon {

struct DaemonFacts {
  std::uint64_t started_ns = 0;
  std::string runtime_dir;
  std::optional<std::string> group;  // that it serves; none: its own user
};

control::Json report(const Boards& boards, const Sample& sample, const Cares& cares, const DaemonFacts& facts,
                     std::uint64_t now);

}  // namespace sluice::daemon
