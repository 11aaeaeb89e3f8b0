// Jobs that are on several GPUs: held on all of them or on none.
//
// A job above holds the ranks on its own GPU at once, by itself. Here the other ranks follow: while a rank is held from
// above, the gates of the job are closed on its other GPUs too, and there it holds nobody, since it does not run. Only
// holds from above count, so what this closes keeps nothing else closed. Pure but for what it remembers; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sluice/policy.h"

namespace sluice::daemon {

class Links {
 public:
  // Jobs of `views` (one of each board) that are on several take no turns from now on: two boards would give them to
  // two jobs, whose ranks would wait for each other. REQUIRES: before the policies see the views.
  void mark(std::vector<policy::Snapshot>* views);
  // Adds to the boards' decisions. Returns when to look again at the latest, on the clock of now_ns().
  std::uint64_t link(const std::vector<policy::Snapshot>& views, std::vector<policy::Decision>* decisions);
  // On how many GPUs the job has to be ready to be held for the sake of one: 1 where no job above is on any of them.
  std::uint32_t gpus_of(std::uint64_t id) const;

 private:
  struct Job {
    std::uint32_t boards = 0;
    bool below = false;  // a job above is on one of its GPUs
    bool active = false;
    bool held = false;               // from above, somewhere
    std::uint64_t contested_ns = 0;  // when a job above last had work on one of its GPUs
    std::uint64_t muted_until_ns = 0;
  };
  std::map<std::uint64_t, Job> jobs_;  // by id: those on several boards
};

}  // namespace sluice::daemon
