#include "spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

int code_of(const std::vector<std::string>& command, Environment environment = Environment::of_this_process(),
            const std::string& folder = "") {
  const Spawned spawned = spawn(command, std::move(environment), folder, nullptr);
  if (spawned.pid == 0) return spawned.exit_code;
  int status = 0;
  EXPECT_EQ(waitpid(spawned.pid, &status, 0), spawned.pid);
  return shell_code(status);
}

TEST(Spawn, ExitCodesAreTheShells) {
  EXPECT_EQ(code_of({"true"}), 0);
  EXPECT_EQ(code_of({"sh", "-c", "exit 42"}), 42);
  EXPECT_EQ(code_of({"sh", "-c", "kill -9 $$"}), 128 + SIGKILL);
  EXPECT_EQ(code_of({"no-such-command-of-sluice"}), kExitNotFound);
  EXPECT_EQ(code_of({"/no/such/file"}), kExitNotFound);
  EXPECT_EQ(code_of({"/"}), kExitNotExecutable);
  EXPECT_EQ(code_of({"/etc/passwd"}), kExitNotExecutable);
}

TEST(Spawn, FailuresAreNamed) {
  EXPECT_EQ(spawn({"no-such-command-of-sluice"}, Environment::of_this_process(), "", nullptr).error,
            "command not found: no-such-command-of-sluice");
  EXPECT_THAT(spawn({"true"}, Environment::of_this_process(), "/no/such/folder", nullptr).error,
              HasSubstr("cannot enter the working directory /no/such/folder"));
}

TEST(Spawn, EnvironmentPathAndFolderAreTheJobs) {
  Environment environment = Environment::of_this_process();
  environment.set("GREETING", "hello");
  EXPECT_EQ(code_of({"sh", "-c", "test \"$GREETING\" = hello && test \"$(pwd)\" = /"}, environment, "/"), 0);
  environment.set("PATH", "/no/such/folder");
  EXPECT_EQ(code_of({"true"}, environment), kExitNotFound) << "PATH of the job's environment is searched";
}

TEST(Spawn, ChildHasTheCallersSignals) {
  sigset_t blocked;
  {
    Signals signals;
    sigprocmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_TRUE(sigismember(&blocked, SIGTERM));
    const Spawned spawned = spawn({"sh", "-c", "kill -TERM $$; exit 3"}, Environment::of_this_process(), "", &signals);
    ASSERT_NE(spawned.pid, 0);
    int status = 0;
    ASSERT_EQ(waitpid(spawned.pid, &status, 0), spawned.pid);
    EXPECT_EQ(shell_code(status), 128 + SIGTERM) << "SIGTERM is blocked in the parent only";
  }
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&blocked, SIGTERM));
}

}  // namespace
}  // namespace sluice::cli
