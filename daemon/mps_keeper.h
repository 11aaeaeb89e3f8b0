// Ends the MPS daemon that Sluice started for this user, once nobody uses it: the backup of the last `sluice run`,
// which may have been killed. Not thread safe.
#pragma once

#include <cstdint>
#include <future>
#include <string>

#include "sluice/base/status.h"
#include "sluice/mps.h"

namespace sluice::daemon {

class MpsKeeper {
 public:
  explicit MpsKeeper(std::string runtime_dir) : runtime_dir_(std::move(runtime_dir)) {}

  // To be called a few times a second; never blocks. Returns whether there is one that this daemon has to stay for.
  bool look(std::uint64_t now);

 private:
  const std::string runtime_dir_;
  std::future<Result<mps::End>> ending_;  // in a thread of its own; waited for by the destructor
  std::uint64_t next_ns_ = 0;
  bool given_up_ = false;
};

}  // namespace sluice::daemon
