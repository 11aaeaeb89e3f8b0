#include "sluice/mps.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice::mps {
namespace {

namespace fs = std::filesystem;

// A folder of its own, and a control program that the test writes; both are gone afterwards.
class Mps : public testing::Test {
 protected:
  Mps() {
    char name[] = "/tmp/sluice-mps-XXXXXX";
    folder_ = mkdtemp(name);
    runtime_ = folder_ + "/runtime";
    fs::create_directory(runtime_);
    fs::create_directory(folder_ + "/bin");
    path_ = getenv("PATH");
    setenv("PATH", (folder_ + "/bin:" + path_).c_str(), 1);
  }
  ~Mps() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  void control_program(const std::string& script) {
    const std::string path = folder_ + "/bin/nvidia-cuda-mps-control";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0700);
  }
  // What a process of Sluice's own would have left after it was killed.
  std::string own() const { return runtime_ + "/mps-" + std::to_string(geteuid()); }

  std::string folder_, runtime_, path_;
};

TEST(ParsePids, LinesThatAreNumbersOnly) {
  EXPECT_EQ(parse_pids("123\n456\n"), (std::vector<pid_t>{123, 456}));
  EXPECT_EQ(parse_pids("123 \r\nServer 4 is gone\n-5\n0\n99999999999999999999\n\n7"), (std::vector<pid_t>{123, 7}));
  EXPECT_TRUE(parse_pids("").empty());
}

TEST_F(Mps, ServersAndTheirClients) {
  control_program("read command pid; [ $command = get_server_list ] && echo 10 || echo 1$pid");
  const auto list = servers(folder_);
  ASSERT_TRUE(list.ok()) << list.status().message();
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(list->front().pid, 10);
  EXPECT_EQ(list->front().clients, std::vector<pid_t>{110});
}

TEST_F(Mps, NoDaemonIsNotFoundWithEitherExitCode) {
  for (const char* code : {"0", "1"}) {
    control_program("echo Cannot find MPS control daemon process; exit " + std::string(code));
    EXPECT_EQ(servers(folder_).status().code(), Code::kNotFound) << code;
  }
}

TEST_F(Mps, WithoutTheControlProgramItIsUnavailable) {
  setenv("PATH", (folder_ + "/bin").c_str(), 1);
  const auto used = use(runtime_, std::nullopt);
  EXPECT_EQ(used.status().code(), Code::kUnavailable);
  EXPECT_NE(std::string(used.status().message()).find("nvidia-cuda-mps-control"), std::string::npos);
}

TEST_F(Mps, NothingOfAJobReachesTheDaemon) {
  setenv("SLUICE_JOB", "1", 1);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  setenv("LD_LIBRARY_PATH", "/x/sluice/shim:/kept:/x/sluice/limit", 1);
  control_program("env > " + folder_ + "/env");
  EXPECT_TRUE(servers(folder_ + "/here").ok());
  for (const char* name : {"SLUICE_JOB", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}) unsetenv(name);
  std::ifstream file(folder_ + "/env");
  const std::string got((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(got.find("SLUICE_JOB"), std::string::npos);
  EXPECT_EQ(got.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_NE(got.find("LD_LIBRARY_PATH=/kept\n"), std::string::npos);
  EXPECT_NE(got.find("CUDA_MPS_PIPE_DIRECTORY=" + folder_ + "/here\n"), std::string::npos);
}

TEST_F(Mps, OneThatDoesNotStartLeavesNothingBehind) {
  control_program(
      "[ \"$1\" = -d ] || { echo Cannot find MPS control daemon process; exit 1; }; echo no such GPU; exit 3");
  const auto used = use(runtime_, folder_);
  EXPECT_EQ(used.status().code(), Code::kUnavailable);
  EXPECT_NE(std::string(used.status().message()).find("exit code 3): no such GPU"), std::string::npos)
      << used.status().message();
  EXPECT_TRUE(fs::is_empty(runtime_));
}

TEST_F(Mps, WhatADeadDaemonLeftIsRemoved) {
  EXPECT_FALSE(has_own(runtime_));
  EXPECT_EQ(*end_unused(runtime_), End::kNothing);
  fs::create_directories(own() + "/pipe");
  chmod(own().c_str(), 0700);
  control_program("echo Cannot find MPS control daemon process; exit 1");
  EXPECT_TRUE(has_own(runtime_));
  EXPECT_EQ(*end_unused(runtime_), End::kEnded);
  EXPECT_TRUE(fs::is_empty(runtime_));
}

TEST_F(Mps, ADirectoryThatOthersCanWriteIsRefused) {
  fs::create_directory(own());
  chmod(own().c_str(), 0770);
  control_program("exit 1");
  EXPECT_EQ(use(runtime_, folder_).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(end_unused(runtime_).status().code(), Code::kPermissionDenied);
  EXPECT_TRUE(fs::exists(own()));
}

TEST_F(Mps, ADaemonIsNotEndedWhileItIsUsed) {
  // Answers as one that runs and has no server; counts what it is told to end.
  control_program("read command; [ \"$command\" != quit ] || echo quit >> " + folder_ + "/quit");
  {
    const auto one = use(runtime_, folder_ + "/none");
    ASSERT_TRUE(one.ok()) << one.status().message();
    EXPECT_TRUE(one->own);
    EXPECT_EQ(*end_unused(runtime_), End::kInUse);
  }
  EXPECT_FALSE(fs::exists(folder_ + "/quit"));
  EXPECT_EQ(*end_unused(runtime_), End::kEnded);
  EXPECT_TRUE(fs::exists(folder_ + "/quit"));
  EXPECT_TRUE(fs::is_empty(runtime_));
}

TEST_F(Mps, AClientKeepsIt) {
  fs::create_directories(own() + "/pipe");
  chmod(own().c_str(), 0700);
  control_program("read command pid; [ $command = get_server_list ] && echo 10 || echo 11");
  EXPECT_EQ(*end_unused(runtime_), End::kInUse);
}

TEST_F(Mps, TheCallersDaemonIsJoined) {
  control_program("exit 0");
  const auto used = use(runtime_, folder_);
  ASSERT_TRUE(used.ok()) << used.status().message();
  EXPECT_FALSE(used->own);
  EXPECT_EQ(used->pipe_directory, folder_);
  EXPECT_TRUE(fs::is_empty(runtime_));
}

}  // namespace
}  // namespace sluice::mps
