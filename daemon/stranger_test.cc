#include "stranger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace sluice::daemon {
namespace {

using testing::HasSubstr;

// A `sleep` with exactly this environment, while the object lives.
class Sleeper {
 public:
  explicit Sleeper(std::vector<std::string> environment, const char* program = "/bin/sleep") {
    std::vector<char*> env;
    for (std::string& variable : environment) env.push_back(variable.data());
    env.push_back(nullptr);
    char name[] = "sleep", time[] = "1000";
    char* argv[] = {name, time, nullptr};
    int running[2];
    EXPECT_EQ(pipe2(running, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      execve(program, argv, env.data());
      _exit(127);
    }
    close(running[1]);
    char byte;
    EXPECT_EQ(read(running[0], &byte, 1), 0) << "closed by a successful exec";
    close(running[0]);
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(Stranger, TheServerOfMps) {
  char folder[] = "/tmp/sluice-stranger-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string program = std::string(folder) + "/nvidia-cuda-mps-server";
  std::filesystem::copy_file("/bin/sleep", program);
  {
    const Sleeper server({"A=b"}, program.c_str());
    EXPECT_EQ(look_at(server.pid()).reason, "the server of MPS: works for its clients");
  }
  std::filesystem::remove_all(folder);
}

TEST(Stranger, StartedWithoutSluice) {
  const Sleeper sleeper({"A=b"});
  const Stranger stranger = look_at(sleeper.pid());
  EXPECT_EQ(stranger.name, "sleep");
  EXPECT_TRUE(stranger.user.has_value());
  EXPECT_EQ(stranger.reason, "started without sluice");
}

TEST(Stranger, AProcessOfAJobIsExplained) {
  const Sleeper disabled({"SLUICE_JOB=7", "SLUICE_DISABLE=1"});
  EXPECT_EQ(look_at(disabled.pid()).reason, "of job 7, but SLUICE_DISABLE=1 is set");
  const Sleeper reset({"SLUICE_JOB=7", "LD_LIBRARY_PATH=/opt/lib"});
  EXPECT_EQ(look_at(reset.pid()).reason, "of job 7, but it started with another LD_LIBRARY_PATH");
  const Sleeper plain({"SLUICE_JOB=7", "LD_LIBRARY_PATH=/opt/lib/sluice/shim:/opt/lib"});
  EXPECT_THAT(look_at(plain.pid()).reason, HasSubstr("no libcuda.so.1"));
}

TEST(Stranger, AProcessThatIsGoneHasNoName) {
  pid_t gone;
  {
    const Sleeper sleeper({});
    gone = sleeper.pid();
  }
  const Stranger stranger = look_at(gone);
  EXPECT_FALSE(stranger.name.has_value());
  EXPECT_FALSE(stranger.user.has_value());
  EXPECT_THAT(stranger.reason, HasSubstr("not visible"));
}

}  // namespace
}  // namespace sluice::daemon
