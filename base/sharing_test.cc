#include "sluice/base/sharing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "sluice/base/user.h"

namespace sluice {
namespace {

class SharingTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/sluice-sharing-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    unlink((directory_ + "/file").c_str());
    rmdir(directory_.c_str());
  }
  Code code(mode_t mode) {
    EXPECT_EQ(chmod(directory_.c_str(), mode), 0);
    return sharing_of(directory_.c_str(), &sharing_).code();
  }
  std::string directory_;
  Sharing sharing_;
};

TEST_F(SharingTest, ADirectoryIsPrivateOrAGroupsOrRefused) {
  EXPECT_EQ(code(0700), Code::kOk);
  EXPECT_FALSE(sharing_.by_group);
  EXPECT_EQ(code(02770), Code::kOk) << "its group is one of ours";
  EXPECT_TRUE(sharing_.by_group);
  EXPECT_EQ(sharing_.owner, geteuid());
  for (mode_t mode : {0770, 02750, 02771, 02775, 0755, 0777}) {
    EXPECT_EQ(code(mode), Code::kPermissionDenied) << std::oct << mode;
  }
}

TEST_F(SharingTest, LinksAndFilesAreNoDirectories) {
  const std::string path = directory_ + "/file";
  ASSERT_EQ(symlink(directory_.c_str(), path.c_str()), 0);
  EXPECT_EQ(sharing_of(path.c_str(), &sharing_).code(), Code::kPermissionDenied);
  EXPECT_EQ(sharing_of((directory_ + "/none").c_str(), &sharing_).code(), Code::kNotFound);
  EXPECT_TRUE(sharing_around(path.c_str(), &sharing_).ok());
}

TEST_F(SharingTest, AFileGetsItsModeWhateverTheUmask) {
  const mode_t before = umask(0777);
  const int fd = open((directory_ + "/file").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  umask(before);
  ASSERT_GE(fd, 0);
  struct stat st;
  for (const bool by_group : {true, false}) {
    const Sharing sharing{geteuid(), by_group, getegid()};
    EXPECT_TRUE(share_file(fd, sharing, "file").ok());
    ASSERT_EQ(file_status(fd, &st), 0);
    EXPECT_EQ(st.st_mode & 07777, by_group ? 0660u : 0600u);
  }
  close(fd);
}

TEST(User, OwnProcess) {
  uid_t user = ~geteuid();
  ASSERT_TRUE(user_of(own_identity(), &user));
  EXPECT_EQ(user, geteuid());
  EXPECT_FALSE(user_of(0, &user));
  EXPECT_EQ(user_name(64099), "64099");
  EXPECT_EQ(group_name(64099), "64099");
}

}  // namespace
}  // namespace sluice
