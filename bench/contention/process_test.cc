#include "process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "sluice/base/clock.h"

namespace sluice::bench {
namespace {

class ProcessTest : public ::testing::Test {
 protected:
  Launch shell(const std::string& script) const {
    Launch launch;
    launch.command = {"sh", "-c", script};
    launch.stdout_path = base_ + ".out";
    launch.stderr_path = base_ + ".err";
    return launch;
  }
  void TearDown() override {
    unlink((base_ + ".out").c_str());
    unlink((base_ + ".err").c_str());
  }
  std::string base_ = ::testing::TempDir() + "process-" + std::to_string(getpid());
};

TEST_F(ProcessTest, GivesExitCodeOutputAndEnvironment) {
  Launch launch = shell("echo '{\"a\": 1}'; echo \"$KEY\" >&2; exit 3");
  launch.environment["KEY"] = "value";
  auto process = Process::start(launch);
  ASSERT_TRUE(process.ok()) << process.status().message();
  EXPECT_EQ(process->wait_or_kill(60), 3);
  EXPECT_EQ(last_json_line(launch.stdout_path), "{\"a\": 1}");
  EXPECT_EQ(tail_of(launch.stderr_path, 1), "  value\n");
}

TEST_F(ProcessTest, SaysWhatCannotBeStarted) {
  Launch launch = shell("");
  launch.command = {"/nonexistent/program"};
  auto process = Process::start(launch);
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.status().code(), Code::kNotFound);
}

TEST_F(ProcessTest, EndsBySigterm) {
  auto process = Process::start(shell("exec sleep 600"));
  ASSERT_TRUE(process.ok());
  EXPECT_FALSE(process->poll().has_value());
  process->ask_to_end();
  EXPECT_EQ(process->wait_or_kill(60), 128 + SIGTERM);
}

TEST_F(ProcessTest, KillsWhatIgnoresSigtermWithItsChildren) {
  Launch launch = shell("trap '' TERM; sleep 600 & echo $!; wait; wait");
  auto process = Process::start(launch);
  ASSERT_TRUE(process.ok());
  pid_t child = 0;
  while (child == 0) {  // ends when the shell has said it, or with the test's own time limit
    std::ifstream(launch.stdout_path) >> child;
    sleep_ns(kNanosPerMilli);
  }
  process->ask_to_end();
  EXPECT_EQ(process->wait_or_kill(0.2), 128 + SIGKILL);
  // The child is init's now, or the sandbox's: gone or a zombie, it answers no signal for long.
  std::string state;
  do {
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string pid, name;
    state = "gone";
    stat >> pid >> name >> state;
  } while (state != "gone" && state != "Z" && state != "X" && !state.empty());
}

}  // namespace
}  // namespace sluice::bench
