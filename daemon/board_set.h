// The boards of a runtime directory, mapped. Thread safe where it says so; a MappedBoard's policy and what follows it
// belong to the scheduler.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/board.h"
#include "sluice/policy.h"

namespace sluice::daemon {

// Which file it was, whatever its name means by now.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator<(const FileId& other) const {
    return device != other.device ? device < other.device : inode < other.inode;
  }
};

class MappedBoard {
 public:
  MappedBoard(board::Board* mapped, std::string path, FileId id)
      : mapped_(mapped), path_(std::move(path)), id_(id), policy(policy::make_all()) {}
  MappedBoard(const MappedBoard&) = delete;
  MappedBoard& operator=(const MappedBoard&) = delete;
  ~MappedBoard() { board::unmap(mapped_); }

  board::Board* operator->() const { return mapped_; }
  board::Board* get() const { return mapped_; }
  const std::string& path() const { return path_; }
  bool occupied() const;  // any slot is taken, by the living or the dead
  bool has_file() const;  // its path still leads to it

 private:
  board::Board* const mapped_;
  const std::string path_;
  const FileId id_;

 public:
  const std::unique_ptr<policy::Policy> policy;
  int reaped_up_to = 0;
  // As last seen. Settled: nobody had work and nothing was closed, so that there is nothing to decide until somebody
  // has.
  policy::Snapshot view;
  std::uint32_t epoch = 0;
  bool settled = false;
};

using Boards = std::vector<std::shared_ptr<MappedBoard>>;

// Not thread safe; the Boards it hands out may be kept and read by any thread.
class BoardSet {
 public:
  explicit BoardSet(std::string runtime_dir) : runtime_dir_(std::move(runtime_dir)) {}

  // Maps boards that are new and lets go of those whose file is gone and that nobody uses. A file that is no usable
  // board is named once in the log.
  void rescan();
  // Reaps a portion of each board's slots, so that hundreds of jobs cost no more than a few dozen; the next call goes
  // on behind it.
  void reap_some(std::uint64_t now);
  Boards all() const;
  // Removes the files of boards that nobody uses. REQUIRES: the boards lock is held exclusively.
  void remove_unused();

 private:
  const std::string runtime_dir_;
  std::map<FileId, std::shared_ptr<MappedBoard>> boards_;
  std::map<FileId, bool> refused_;
};

}  // namespace sluice::daemon
