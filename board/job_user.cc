// Apart from slots.cc, which the shim contains: this needs more of the system.
#include "sluice/base/user.h"
#include "sluice/board.h"

namespace sluice::board {

bool job_user(const Board* board, const Job& job, uid_t* user) {
  if (user_of(job.owner.load(), user)) return true;
  const auto index = static_cast<std::uint32_t>(&job - board->jobs);
  for (const Client& client : board->clients) {
    if (client.live.load() != 0 && client.job.load() == index && user_of(client.owner.load(), user)) return true;
  }
  return false;
}

}  // namespace sluice::board
