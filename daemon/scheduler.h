// The thread that runs the policies on all boards, finds new boards and reaps the dead. Thread safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "board_set.h"
#include "care.h"
#include "links.h"
#include "sluice/daemon.h"

namespace sluice::daemon {

class Scheduler {
 public:
  explicit Scheduler(const Options& options);
  ~Scheduler();  // stop()

  void start();
  // Ends the thread, opens every gate that the policies have closed, and signs off from the boards.
  void stop();
  // Looks for new boards and for the dead at once, in the caller's thread.
  void rescan();

  // What is to be done about the cards from now on.
  void set_cares(Cares cares);
  Cares cares() const;

  Boards boards() const;
  // When a job or client was last seen on any board, or the scheduler was made.
  std::uint64_t last_occupied_ns() const;
  // Removes the files of boards that nobody uses. REQUIRES: the boards lock is held exclusively.
  void remove_unused_boards();

 private:
  void loop();
  enum class Reap { kSome, kAll };
  void rescan_locked(std::uint64_t now, Reap reap);
  void note_gpus(board::Board& board);
  double low_ratio(const board::Board& board) const;
  static policy::Snapshot look(MappedBoard& board, std::uint64_t now);
  // Runs the policies once; returns when to do so again.
  std::uint64_t decide_locked(std::uint64_t now);

  const Options options_;
  const std::uint64_t self_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable stopped_;
  BoardSet boards_;
  Links links_;
  Cares cares_;
  bool stop_ = false;
  std::uint64_t last_occupied_ns_;
  std::uint64_t next_scan_ns_ = 0;
  std::thread thread_;
};

}  // namespace sluice::daemon
