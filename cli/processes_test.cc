#include "processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elf_paths.h"
#include "environment.h"
#include "sluice/base/clock.h"
#include "sluice/board.h"
#include "spawn.h"

namespace sluice::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A command that runs until this object goes.
class Running {
 public:
  Running(std::vector<std::string> command, Environment environment) {
    pid_ = spawn(command, std::move(environment), "", nullptr).pid;
  }
  ~Running() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

// As `sluice run` sets it for job `id` with a board in `directory`; null: in this process's runtime directory.
Environment of_job(const std::string& id, const char* directory = nullptr) {
  char ours[512];
  EXPECT_TRUE(board::runtime_directory(ours, sizeof ours).ok());
  Environment environment = Environment::of_this_process();
  environment.set("SLUICE_JOB", id);
  environment.set("SLUICE_BOARDS", "GPU-1=" + std::string(directory != nullptr ? directory : ours) + "/GPU-1.board:0");
  return environment;
}

TEST(Processes, TreeHoldsTheDescendants) {
  const Running child({"sleep", "1000"}, Environment::of_this_process());
  EXPECT_THAT(process_tree(getpid()), Contains(child.pid()));
  EXPECT_THAT(process_tree(child.pid()), ::testing::ElementsAre(child.pid()));
  EXPECT_THAT(process_tree(child.pid()), Not(Contains(getpid())));
}

TEST(Processes, WhoDiesOfASignal) {
  Running plain({"sleep", "1000"}, Environment::of_this_process());
  EXPECT_TRUE(dies_of(plain.pid(), SIGTERM));
  signal(SIGTERM, SIG_IGN);
  Running ignoring({"sleep", "1000"}, Environment::of_this_process());
  EXPECT_FALSE(dies_of(getpid(), SIGTERM));
  signal(SIGTERM, [](int) {});
  EXPECT_FALSE(dies_of(getpid(), SIGTERM)) << "handled";
  signal(SIGTERM, SIG_DFL);
  EXPECT_FALSE(dies_of(ignoring.pid(), SIGTERM));
  EXPECT_TRUE(dies_of(ignoring.pid(), SIGKILL));
  EXPECT_FALSE(dies_of(0, SIGKILL));
}

TEST(Processes, AVariableOfAnother) {
  Environment environment = Environment::of_this_process();
  environment.set("SLUICE_X", "a=b");
  Running child({"sleep", "1000"}, environment);
  EXPECT_EQ(variable_of(child.pid(), "SLUICE_X"), "a=b");
  EXPECT_EQ(variable_of(child.pid(), "SLUICE_"), std::nullopt);
}

TEST(Processes, WhatTheKernelSaysOfOne) {
  const Running child({"sleep", "1000"}, Environment::of_this_process());
  EXPECT_EQ(parent_of(child.pid()), getpid());
  EXPECT_EQ(parent_of(0), 0);
  EXPECT_EQ(program_of(getpid()), "cli_test");
  EXPECT_EQ(program_of(0), "");
}

TEST(Processes, JobIsFoundByItsEnvironmentToo) {
  const std::uint64_t before = now_ns();
  const Running child({"sleep", "1000"}, of_job("987654321"));
  EXPECT_THAT(processes_of_job(987654321, 0, before), ::testing::ElementsAre(identity_of(child.pid())));
  EXPECT_THAT(processes_of_job(98765432, 0, before), ::testing::IsEmpty()) << "a prefix is another job";
}

TEST(Processes, TheSameNumberInAnotherRuntimeDirectoryIsAnotherJob) {
  const std::uint64_t before = now_ns();
  const Running child({"sleep", "1000"}, of_job("987654323", "/dev/shm/sluice-of-somebody"));
  EXPECT_THAT(processes_of_job(987654323, 0, before), ::testing::IsEmpty());
}

TEST(Processes, OlderProcessesAreAnotherJobs) {
  const Running child({"sleep", "1000"}, of_job("987654322"));
  EXPECT_THAT(processes_of_job(987654322, child.pid(), now_ns() + kNanosPerSecond), ::testing::IsEmpty());
}

TEST(Processes, ReasonForAProcessWithoutTheDriver) {
  const Running child({"sleep", "1000"}, Environment::of_this_process());
  EXPECT_THAT(why_unseen(child.pid(), "/opt/sluice/lib/sluice/shim"), HasSubstr("no libcuda.so"));
}

TEST(Processes, AGoneProcessHasNoName) {
  EXPECT_EQ(process_name(0), "");
  EXPECT_THAT(why_unseen(0, "/shim"), HasSubstr("cannot be looked into"));
}

TEST(ElfPaths, FilesWithoutRpath) {
  EXPECT_EQ(rpath_of("/proc/self/exe"), "");
  EXPECT_EQ(rpath_of("/etc/passwd"), "");
  EXPECT_EQ(rpath_of("/no/such/file"), "");
  EXPECT_EQ(rpath_of("/"), "");
}

}  // namespace
}  // namespace sluice::cli
