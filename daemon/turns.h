// One board as the policies see it, and their decision carried out on it. Pure but for the board; any thread.
#pragma once

#include <cstdint>

#include "sluice/board.h"
#include "sluice/policy.h"

namespace sluice::daemon {

// The jobs that have a process on this GPU. A job of several processes is active if one of them is, has moved when
// one has, and has been held as long as the one held longest.
policy::Snapshot snapshot(const board::Board& board, std::uint64_t now);

// Whether any client of the board has work: what must be asked often, and is a load each.
bool any_active(const board::Board& board);

// Whether a policy could decide anything now: equals compete, or a job that leaves a part to those below runs.
bool contended(const policy::Snapshot& snapshot);

// Opens first and closes then, so that the GPU is never without work in between. Also opens what an earlier daemon
// left closed.
void apply(board::Board* board, const policy::Decision& decision, std::uint64_t now);

}  // namespace sluice::daemon
