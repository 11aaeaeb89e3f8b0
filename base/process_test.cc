#include "sluice/base/process.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace sluice {
namespace {

TEST(Process, OwnIdentityIsAliveAndCarriesThePid) {
  ProcessIdentity me = own_identity();
  EXPECT_NE(me, 0u);
  EXPECT_EQ(pid_of(me), getpid());
  EXPECT_TRUE(is_alive(me));
}

TEST(Process, AZombieExistsAndIsNotAlive) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const auto identity = static_cast<ProcessIdentity>(child) | (own_identity() >> kPidBits << kPidBits);
  EXPECT_TRUE(process_exists(identity));
  EXPECT_FALSE(is_alive(identity));
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(process_exists(identity)) << "pids go round, so this one is not given again at once";
  EXPECT_FALSE(process_exists(0));
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

TEST(Process, OutlivesItsFirstThread) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    pthread_t other;
    const auto run = [](void* fd) -> void* {
      // Written only when the first thread is a zombie.
      while (identity_of(getpid()) == 0) sched_yield();
      char state = '?';
      while (state != 'Z') {
        char text[64] = {};
        FILE* file = fopen("/proc/self/stat", "r");
        if (file == nullptr || fscanf(file, "%*d %63s %c", text, &state) != 2) _exit(1);
        fclose(file);
      }
      if (write(static_cast<int>(reinterpret_cast<intptr_t>(fd)), "x", 1) != 1) _exit(1);
      pause();
      return nullptr;
    };
    pthread_create(&other, nullptr, run, reinterpret_cast<void*>(static_cast<intptr_t>(ready[1])));
    syscall(SYS_exit, 0);  // this thread alone; pthread_exit would unwind through the test's frames
  }
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ProcessIdentity identity = identity_of(child);
  EXPECT_NE(identity, 0u);
  EXPECT_TRUE(is_alive(identity));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(is_alive(identity));
  close(ready[0]);
}

TEST(Process, IsNotCalledDeadForWantOfADescriptor) {
  const ProcessIdentity me = own_identity();
  const ProcessIdentity parent = identity_of(getppid());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool own_alive = is_alive(me);
  const bool parent_alive = is_alive(parent);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(own_alive);
  EXPECT_TRUE(parent_alive);
}

}  // namespace
}  // namespace sluice
