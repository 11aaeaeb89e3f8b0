// A board of its own for a test, whose jobs and clients belong to the test's process.
#pragma once

#include <gtest/gtest.h>
#include <limits.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "sluice/base/clock.h"
#include "sluice/board.h"

namespace sluice::daemon {

inline constexpr char kTestDevice[] = "GPU-00000000-0000-0000-0000-000000000001";  // the first of the fake NVML

// A runtime directory that is the environment's while it lives.
class TestRuntime {
 public:
  TestRuntime() {
    char path[] = "/tmp/sluice-daemon-XXXXXX";
    path_ = mkdtemp(path);
    setenv("SLUICE_RUNTIME_DIR", path, 1);
  }
  ~TestRuntime() {
    unsetenv("SLUICE_RUNTIME_DIR");
    // A daemon that lost the race to start, or was just killed, may still write there: that makes the removal fail
    // (and would throw), but not for long.
    std::error_code error;
    for (int attempt = 0; attempt < 1000; ++attempt) {
      std::filesystem::remove_all(path_, error);
      if (!error) return;
      sleep_ns(kNanosPerMilli);
    }
    ADD_FAILURE() << path_ << " could not be removed: " << error.message();
  }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

class TestBoard {
 public:
  TestBoard() {
    char path[PATH_MAX];
    EXPECT_TRUE(board::board_path(kTestDevice, path, sizeof path).ok());
    Result<board::Board*> mapped = board::map(path, kTestDevice, "Test card", false);
    EXPECT_TRUE(mapped.ok()) << mapped.status().message();
    board_ = *mapped;
  }
  ~TestBoard() { board::unmap(board_); }

  board::Board* get() const { return board_; }
  board::Client& client(int slot) const { return board_->clients[slot]; }
  board::Job& job(int slot) const { return board_->jobs[slot]; }

  int add_job(int priority, unsigned share) const {
    board::JobSpec spec;
    spec.priority = priority;
    spec.share = share;
    spec.name = "test job";
    const Result<int> slot = board::claim_job(board_, spec, own_identity());
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    return *slot;
  }
  int add_client(int job) const {
    const Result<int> slot = board::claim_client(board_, job, own_identity());
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    return *slot;
  }

 private:
  TestRuntime runtime_;
  board::Board* board_;

 public:
  const TestRuntime& runtime() const { return runtime_; }
};

}  // namespace sluice::daemon
