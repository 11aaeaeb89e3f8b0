// The board's file and the directory that it is in.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "board_test_util.h"
#include "sluice/board.h"

namespace sluice::board {
namespace {

class FileTest : public ScratchBoard {};

TEST_F(FileTest, ANewBoardIsFilledAndPrivate) {
  EXPECT_EQ(board_->magic, kMagic);
  EXPECT_EQ(board_->version, kVersion);
  EXPECT_STREQ(board_->device, kDevice);
  EXPECT_STREQ(board_->device_name, "Test GPU");
  EXPECT_EQ(board_->simulated.load(), 1u);
  EXPECT_EQ(board_->quantum_ns.load(), kDefaultQuantumNs);
  EXPECT_EQ(board_->linger_ns.load(), kDefaultLingerNs);
  struct stat st;
  ASSERT_EQ(stat(path_, &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_GE(st.st_blocks * 512, static_cast<long>(sizeof(Board))) << "a hole in the file is a SIGBUS when space is out";
  EXPECT_EQ(names_in_directory(), 1) << "nothing but the board is left";
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(board_) % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)), 0u);
}

TEST_F(FileTest, TwoMappingsAreOneBoard) {
  Board* other = *map(path_);
  ASSERT_NE(other, board_);
  const int slot = *claim_client(board_, *claim_job(board_, {}, own_identity()), own_identity());
  EXPECT_EQ(other->clients[slot].owner.load(), own_identity());
  unmap(other);
}

TEST_F(FileTest, MissingBoardIsNotFound) {
  EXPECT_EQ(map((std::string(path_) + "x").c_str()).status().code(), Code::kNotFound);
}

TEST_F(FileTest, ADeletedBoardLivesOnForThoseWhoHaveIt) {
  const int slot = *claim_client(board_, *claim_job(board_, {}, own_identity()), own_identity());
  ASSERT_EQ(unlink(path_), 0);
  Board* fresh = *map(path_, kDevice);
  EXPECT_EQ(fresh->clients[slot].owner.load(), 0u);
  EXPECT_EQ(close_gate(board_, slot, kSpareBit, 1), 0u);
  EXPECT_EQ(board_->clients[slot].gate.load(), kSpareBit);
  unmap(fresh);
}

TEST_F(FileTest, AnotherVersionIsRefusedByNumber) {
  board_->version = kVersion + 1;
  const Status status = map(path_, kDevice).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("version " + std::to_string(kVersion + 1)), std::string::npos);
}

TEST_F(FileTest, DamagedFilesAreRefused) {
  board_->bytes = 5;
  EXPECT_EQ(map(path_, kDevice).status().code(), Code::kFailedPrecondition);
  board_->bytes = sizeof(Board);
  std::memset(board_->device, 'x', sizeof board_->device);
  EXPECT_EQ(map(path_, kDevice).status().code(), Code::kFailedPrecondition);
  board_->magic = 0;
  EXPECT_EQ(map(path_, kDevice).status().code(), Code::kFailedPrecondition);
}

TEST_F(FileTest, TruncatedFilesAreRefused) {
  unmap(board_);
  for (off_t size : {off_t{4096}, off_t{6}, off_t{0}}) {
    ASSERT_EQ(truncate(path_, size), 0);
    EXPECT_EQ(map(path_, kDevice).status().code(), Code::kFailedPrecondition) << size;
  }
  ASSERT_EQ(unlink(path_), 0);
  board_ = *map(path_, kDevice);
}

TEST_F(FileTest, AFileOpenToOthersIsRefused) {
  ASSERT_EQ(chmod(path_, 0640), 0);
  EXPECT_EQ(map(path_, kDevice).status().code(), Code::kPermissionDenied);
}

TEST_F(FileTest, AFileOfSomebodyElseIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  ASSERT_EQ(chown(path_, 12345, 12345), 0);
  EXPECT_EQ(map(path_, kDevice).status().code(), Code::kPermissionDenied);
}

TEST_F(FileTest, InAGroupsDirectoryABoardIsTheGroups) {
  ASSERT_EQ(chmod(directory_.c_str(), 02770), 0);
  const std::string path = directory_ + "/group.board";
  Result<Board*> made = map(path.c_str(), kDevice);
  ASSERT_TRUE(made.ok()) << made.status().message();
  unmap(*made);
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0660u);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, st.st_gid), 0);
    Result<Board*> anothers = map(path.c_str());
    ASSERT_TRUE(anothers.ok()) << "made by another member: " << anothers.status().message();
    unmap(*anothers);
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_EQ(map(path.c_str()).status().code(), Code::kPermissionDenied) << "of another group";
    ASSERT_EQ(chown(path.c_str(), geteuid(), st.st_gid), 0);
  }
  ASSERT_EQ(chmod(path.c_str(), 0664), 0);
  EXPECT_EQ(map(path.c_str()).status().code(), Code::kPermissionDenied) << "others can read it";
  ASSERT_EQ(chmod(path.c_str(), 0660), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
  EXPECT_EQ(map(path.c_str()).status().code(), Code::kPermissionDenied) << "the directory is nobody's but ours";
}

TEST_F(FileTest, ASymbolicLinkIsNotFollowed) {
  const std::string link = directory_ + "/link.board";
  ASSERT_EQ(symlink(path_, link.c_str()), 0);
  EXPECT_EQ(map(link.c_str(), kDevice).status().code(), Code::kPermissionDenied);
  const std::string dangling = directory_ + "/dangling.board";
  ASSERT_EQ(symlink("/nowhere/at/all", dangling.c_str()), 0);
  EXPECT_EQ(map(dangling.c_str(), kDevice).status().code(), Code::kPermissionDenied);
}

TEST_F(FileTest, ADirectoryInItsPlaceIsAnErrorNotACrash) {
  const std::string path = directory_ + "/dir.board";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_FALSE(map(path.c_str(), kDevice).ok());
}

TEST_F(FileTest, AFileSizeLimitIsAnErrorNotASignal) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Code code = map((directory_ + "/limited.board").c_str(), kDevice).status().code();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(code, Code::kResourceExhausted);
  EXPECT_EQ(names_in_directory(), 1);
}

TEST_F(FileTest, RuntimeDirectoryIsCreatedPrivateAndChecked) {
  char out[256];
  const std::string path = directory_ + "/run";
  setenv("SLUICE_RUNTIME_DIR", path.c_str(), 1);
  ASSERT_TRUE(runtime_directory(out, sizeof out).ok());
  EXPECT_EQ(out, path);
  struct stat st;
  ASSERT_EQ(stat(out, &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  ASSERT_EQ(chmod(out, 0755), 0);
  EXPECT_EQ(runtime_directory(out, sizeof out).code(), Code::kPermissionDenied);

  const std::string link = directory_ + "/alias";
  ASSERT_EQ(symlink(directory_.c_str(), link.c_str()), 0);
  setenv("SLUICE_RUNTIME_DIR", link.c_str(), 1);
  EXPECT_EQ(runtime_directory(out, sizeof out).code(), Code::kPermissionDenied);

  setenv("SLUICE_RUNTIME_DIR", (directory_ + "/missing/run").c_str(), 1);
  EXPECT_EQ(runtime_directory(out, sizeof out).code(), Code::kFailedPrecondition);
  setenv("SLUICE_RUNTIME_DIR", "relative", 1);
  EXPECT_EQ(runtime_directory(out, sizeof out).code(), Code::kInvalidArgument);
  setenv("SLUICE_RUNTIME_DIR", directory_.c_str(), 1);
  EXPECT_EQ(runtime_directory(out, 4).code(), Code::kInvalidArgument);
}

TEST_F(FileTest, TheDefaultDirectoryIsNobodysButTheUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  if (access(kGroupDirectory, F_OK) == 0) GTEST_SKIP() << kGroupDirectory << " is in use here";
  const uid_t user = 3000000000u + static_cast<uid_t>(getpid());  // nobody's
  const std::string own = "/dev/shm/sluice-" + std::to_string(user);
  char out[256];
  const auto as_user = [&] {
    EXPECT_EQ(setegid(user), 0);
    EXPECT_EQ(seteuid(user), 0);
    const Status status = runtime_directory(out, sizeof out);
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
    return status.code();
  };
  ASSERT_EQ(mkdir(own.c_str(), 0700), 0);
  ASSERT_EQ(chown(own.c_str(), 12345, user), 0);
  ASSERT_EQ(chmod(own.c_str(), 02770), 0);
  setenv("SLUICE_RUNTIME_DIR", own.c_str(), 1);
  EXPECT_EQ(as_user(), Code::kOk) << "a member named it";
  unsetenv("SLUICE_RUNTIME_DIR");
  EXPECT_EQ(as_user(), Code::kPermissionDenied) << "somebody made it before";
  EXPECT_EQ(chown(own.c_str(), user, user), 0);
  EXPECT_EQ(chmod(own.c_str(), 0700), 0);
  EXPECT_EQ(as_user(), Code::kOk);
  EXPECT_EQ(out, own);
  EXPECT_EQ(rmdir(own.c_str()), 0);
}

TEST_F(FileTest, BoardPathTakesUuidsOnly) {
  char out[256];
  ASSERT_TRUE(board_path("GPU-0123-abc", out, sizeof out).ok());
  EXPECT_EQ(out, directory_ + "/GPU-0123-abc.board");
  for (const char* bad : {"", "../x", "a/b", "a.b", "a b"}) {
    EXPECT_EQ(board_path(bad, out, sizeof out).code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_EQ(board_path(std::string(64, 'a').c_str(), out, sizeof out).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::board
