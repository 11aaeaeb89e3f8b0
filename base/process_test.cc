#include "sluice/base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice {
namespace {

TEST(Process, OwnIdentityIsAliveAndCarriesThePid) {
  ProcessIdentity me = own_identity();
  EXPECT_NE(me, 0u);
  EXPECT_EQ(pid_of(me), getpid());
  EXPECT_TRUE(is_alive(me));
}

TEST(Process, NoProcessIsNotAlive) {
  EXPECT_FALSE(is_alive(0));
  EXPECT_EQ(identity_of(0), 0u);
  EXPECT_EQ(identity_of(-1), 0u);
}

TEST(Process, AnotherStartTimeIsAnotherProcess) {
  EXPECT_FALSE(is_alive(own_identity() + (ProcessIdentity{1} << kPidBits)));
}

TEST(Process, ZombieAndReapedChildAreNotAlive) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "a) b (c");  // a name that would mislead a naive parser
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ProcessIdentity identity = identity_of(child);
  EXPECT_TRUE(is_alive(identity));
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(is_alive(identity)) << "a zombie holds nothing any more";
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(is_alive(identity));
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace sluice
