// What the daemon leaves in the runtime directory for jobs: the part of their batch that they should take, and which
// cards are out of use. Not thread safe.
#pragma once

#include <map>
#include <string>

#include "board_set.h"
#include "care.h"

namespace sluice::daemon {

class Messages {
 public:
  explicit Messages(std::string runtime_dir) : runtime_dir_(std::move(runtime_dir)) {}

  // A hint for each job on a card that wants one; of several cards the least. Those of jobs that are gone are removed.
  void hint(const Boards& boards, const Cares& cares);
  // From now on no job is started on the card, by whomever, until the file is removed or the machine restarts.
  void take_out(const std::string& uuid, const std::string& why) const;

 private:
  const std::string runtime_dir_;
  std::map<std::string, std::string> written_;  // by name
  bool swept_ = false;                          // what an earlier daemon left is gone
};

}  // namespace sluice::daemon
