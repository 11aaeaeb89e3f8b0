// A board in a directory of its own, for the tests of this room.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "sluice/board.h"

namespace sluice::board {

inline constexpr char kDevice[] = "GPU-00000000-test";

// An identity that no process has: the caller's pid with a start time that it does not have.
inline ProcessIdentity dead_identity() { return own_identity() + (ProcessIdentity{1} << kPidBits); }

class ScratchBoard : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/sluice-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    setenv("SLUICE_RUNTIME_DIR", name, 1);
    ASSERT_TRUE(board_path(kDevice, path_, sizeof path_).ok());
    Result<Board*> board = map(path_, kDevice, "Test GPU", true);
    ASSERT_TRUE(board.ok()) << board.status().message();
    board_ = *board;
  }
  void TearDown() override {
    if (board_ != nullptr) unmap(board_);
    std::filesystem::remove_all(directory_);
  }
  int names_in_directory() const {
    int names = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_)) ++names;
    return names;
  }

  std::string directory_;
  char path_[256] = {};
  Board* board_ = nullptr;
};

}  // namespace sluice::board
