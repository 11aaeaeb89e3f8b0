// sluiced itself, started as `sluice run` starts it, on boards whose clients this process plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "sluice/base/clock.h"
#include "sluice/control.h"
#include "test_board.h"

namespace sluice::daemon {
namespace {

using control::Json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kLong = 60 * kNanosPerSecond;  // only a failing test waits so long

#ifdef SLUICE_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

bool eventually(const std::function<bool()>& happened) {
  for (const std::uint64_t deadline = now_ns() + kLong; now_ns() < deadline; sleep_ns(kNanosPerMilli)) {
    if (happened()) return true;
  }
  return false;
}

Result<Json> start(const TestRuntime& runtime, const std::string& idle_exit) {
  control::DaemonStart request;
  request.runtime_dir = runtime.path();
  request.program = SLUICED;
  request.args = {"--idle-exit", idle_exit};
  request.timeout_ns = kLong;
  return control::ensure_daemon(request);
}

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override { setenv("SLUICE_NVML", FAKE_NVML, 1); }
  void TearDown() override {
    if (daemon_ != 0 && is_alive(daemon_)) kill_daemon(SIGKILL);
  }

  void start_daemon(const std::string& idle_exit = "1h") {
    const Result<Json> hello = start(board_.runtime(), idle_exit);
    ASSERT_TRUE(hello.ok()) << hello.status().message();
    daemon_ = identity_of((*hello)["pid"].get<pid_t>());
    ASSERT_NE(daemon_, 0u);
  }
  void kill_daemon(int signal) {
    kill(pid_of(daemon_), signal);
    ASSERT_TRUE(eventually([&] { return !is_alive(daemon_); }));
  }
  Json ask(Json request) {
    Result<Json> reply = control::request(board_.runtime().path(), std::move(request), kLong);
    return reply.ok() ? *reply : control::error_reply(reply.status());
  }

  // A daemon with a busy job on a card that the fake NVML plays.
  void start_with_card(const std::string& series) {
    const std::string machine = board_.runtime().path() + "/machine.toml";
    std::ofstream(machine) << "[[card]]\nUUID = \"" << kTestDevice << "\"\n" << series;
    go_to_sample(0);
    setenv("SLUICE_FAKE_NVML", machine.c_str(), 1);
    setenv("SLUICE_FAKE_NVML_STEP", step_file().c_str(), 1);
    busy_client(50, 1);
    start_daemon();
    unsetenv("SLUICE_FAKE_NVML");
    unsetenv("SLUICE_FAKE_NVML_STEP");
  }
  std::string step_file() { return board_.runtime().path() + "/step"; }
  void go_to_sample(int number) { std::ofstream(step_file()) << number; }
  // Whether the daemon wrote this of the card.
  bool logged(const char* text) {
    std::ifstream file(board_.runtime().path() + "/" + control::kLogName);
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    return log.find(std::string(kTestDevice) + ": " + text) != std::string::npos;
  }

  // A job of one process that is busy from now on.
  int busy_client(int priority, unsigned share) {
    const int slot = board_.add_client(board_.add_job(priority, share));
    board_.client(slot).active_ns = now_ns();
    board_.client(slot).progress_ns = now_ns();
    board_.client(slot).active = 1;
    return slot;
  }
  bool closed(int slot) { return (board_.client(slot).gate.load() & board::kTurnBit) != 0; }
  // Plays GPU work: what is not closed moves on.
  void progress(std::initializer_list<int> slots) {
    for (int slot : slots) {
      if (closed(slot)) continue;
      board_.client(slot).progress.fetch_add(1);
      board_.client(slot).progress_ns = now_ns();
    }
  }
  std::string file(const char* name) { return board_.runtime().path() + "/" + name; }

  TestBoard board_;
  ProcessIdentity daemon_ = 0;
};

TEST_F(DaemonTest, TurnsFollowSharesAndTheGpuIsNeverClosedToAll) {
  const int large = busy_client(50, 3), small = busy_client(50, 1);
  start_daemon();
  ASSERT_TRUE(eventually([&] { return closed(large) || closed(small); })) << "turns begin";
  double open_large = 0, open_small = 0;
  std::uint64_t before = now_ns();
  while (open_large + open_small < 4e9) {
    progress({large, small});
    // Read at several moments: only if `large` stayed closed from first to last were both closed at one of them.
    const std::uint64_t first = board_.client(large).closed_ns.load();
    const bool large_closed = closed(large), small_closed = closed(small), still_closed = closed(large);
    const bool one_closing = first != 0 && board_.client(large).closed_ns.load() == first;
    EXPECT_FALSE(large_closed && small_closed && still_closed && one_closing);
    const std::uint64_t now = now_ns();
    (small_closed ? open_large : open_small) += static_cast<double>(now - before);
    before = now;
    sleep_ns(100 * kNanosPerMicro);
  }
  EXPECT_NEAR(std::log2(open_large / open_small), std::log2(3.0), 0.25);
}

TEST_F(DaemonTest, AKilledDaemonLeavesNobodyHeld) {
  const int a = busy_client(50, 1), b = busy_client(50, 1);
  start_daemon();
  ASSERT_TRUE(eventually([&] { return progress({a, b}), closed(a) || closed(b); }));
  kill_daemon(SIGKILL);
  for (int slot : {a, b}) {
    board::check_holders(board_.get(), slot, now_ns());
    EXPECT_EQ(board_.client(slot).gate.load(), 0u);
  }
}

TEST_F(DaemonTest, AStoppedDaemonLeavesNobodyHeldAndGoesOnLater) {
  const int a = busy_client(50, 1), b = busy_client(50, 1);
  start_daemon();
  ASSERT_TRUE(eventually([&] { return progress({a, b}), closed(a) || closed(b); }));
  kill(pid_of(daemon_), SIGSTOP);
  EXPECT_TRUE(eventually([&] {
    for (int slot : {a, b}) board::check_holders(board_.get(), slot, now_ns());
    return !closed(a) && !closed(b);
  }));
  kill(pid_of(daemon_), SIGCONT);
  EXPECT_TRUE(eventually([&] { return progress({a, b}), closed(a) || closed(b); }));
}

TEST_F(DaemonTest, ANewDaemonAdoptsTheBoard) {
  const int a = busy_client(50, 1), b = busy_client(50, 1);
  start_daemon();
  ASSERT_TRUE(eventually([&] { return progress({a, b}), closed(a) || closed(b); }));
  const ProcessIdentity first = daemon_;
  kill_daemon(SIGKILL);
  start_daemon();
  EXPECT_NE(daemon_, first);
  EXPECT_EQ(board_.get()->daemon.load(), daemon_);
  for (int slot : {a, b}) {
    EXPECT_TRUE(eventually([&] { return progress({a, b}), closed(slot); }));
    EXPECT_TRUE(eventually([&] { return progress({a, b}), !closed(slot); }));
  }
}

TEST_F(DaemonTest, SigtermOpensTheGatesAndSignsOff) {
  const int a = busy_client(50, 1), b = busy_client(50, 1);
  start_daemon();
  ASSERT_TRUE(eventually([&] { return progress({a, b}), closed(a) || closed(b); }));
  kill_daemon(SIGTERM);
  EXPECT_EQ(board_.client(a).gate.load(), 0u);
  EXPECT_EQ(board_.client(b).gate.load(), 0u);
  EXPECT_EQ(board_.get()->daemon.load(), 0u);
  EXPECT_NE(access(file(control::kSocketName).c_str(), F_OK), 0);
  EXPECT_NE(access(file(control::kDaemonLockName).c_str(), F_OK), 0);
  char path[PATH_MAX];
  ASSERT_TRUE(board::board_path(kTestDevice, path, sizeof path).ok());
  EXPECT_EQ(access(path, F_OK), 0) << "the board is in use and stays";
}

TEST_F(DaemonTest, LeavesWhenIdleAndLeavesNothingBehind) {
  const int job = board_.add_job(50, 1);
  start_daemon("10ms");
  board::release_job(board_.get(), job);
  EXPECT_TRUE(eventually([&] { return !is_alive(daemon_); }));
  EXPECT_TRUE(board_.runtime().empty());
}

TEST_F(DaemonTest, LeavesWhenItsDirectoryIsDeletedAndTouchesNoNewOne) {
  const int first = busy_client(50, 1), second = busy_client(50, 1);
  start_daemon();
  ASSERT_TRUE(eventually([&] {
    progress({first, second});
    return closed(first) || closed(second);
  }));
  const std::string directory = board_.runtime().path();
  std::filesystem::rename(directory, directory + ".away");
  std::filesystem::create_directory(directory);
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all);
  for (const char* name : {control::kSocketName, control::kDaemonLockName, control::kLogName})
    std::ofstream(file(name));
  EXPECT_TRUE(eventually([&] { return !is_alive(daemon_); })) << "though jobs are there and it is not idle";
  EXPECT_FALSE(closed(first) || closed(second));
  for (const char* name : {control::kSocketName, control::kDaemonLockName, control::kLogName})
    EXPECT_TRUE(std::filesystem::exists(file(name))) << name;
  std::filesystem::remove_all(directory + ".away");
}

TEST_F(DaemonTest, StaysWhileAJobIsThereOrSomebodyIsAboutToStartOne) {
  auto boards = control::hold_boards(board_.runtime().path());
  ASSERT_TRUE(boards.ok());
  start_daemon("0");
  for (int i = 0; i < 20; ++i) {
    sleep_ns(10 * kNanosPerMilli);
    ASSERT_EQ(ask({{"op", "hello"}})["pid"], pid_of(daemon_));
  }
  const int job = board_.add_job(50, 1);
  boards->release();
  for (int i = 0; i < 20; ++i) {
    sleep_ns(10 * kNanosPerMilli);
    ASSERT_EQ(ask({{"op", "hello"}})["pid"], pid_of(daemon_));
  }
  board::release_job(board_.get(), job);
  EXPECT_TRUE(eventually([&] { return !is_alive(daemon_); }));
}

TEST_F(DaemonTest, ManyStartsAtOnceYieldOneDaemon) {
  int answers[2];
  ASSERT_EQ(pipe(answers), 0);
  constexpr int kStarters = 12;
  std::vector<pid_t> starters;
  for (int i = 0; i < kStarters; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      // Not for ever: one that comes up only after the test has ended is nobody's to end.
      const Result<Json> hello = start(board_.runtime(), "60s");
      const pid_t pid = hello.ok() ? (*hello)["pid"].get<pid_t>() : -1;
      _exit(write(answers[1], &pid, sizeof pid) == sizeof pid ? 0 : 1);
    }
    starters.push_back(child);
  }
  std::set<pid_t> daemons;
  for (int i = 0; i < kStarters; ++i) {
    pid_t pid = 0;
    ASSERT_EQ(read(answers[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    daemons.insert(pid);
  }
  for (pid_t starter : starters) waitpid(starter, nullptr, 0);
  close(answers[0]);
  close(answers[1]);
  ASSERT_EQ(daemons.size(), 1u);
  ASSERT_GT(*daemons.begin(), 0);
  daemon_ = identity_of(*daemons.begin());
}

// A daemon that lost the race to start still writes there when the test is over: that threw in a destructor.
TEST(TestRuntimeTest, ADirectoryIsRemovedInWhichAnEndingProcessStillWrites) {
  std::string path;
  std::thread writer;
  {
    TestRuntime runtime;
    path = runtime.path();
    std::ofstream(path + "/0");
    writer = std::thread([path] {
      for (int i = 0; i < 2000; ++i) std::ofstream(path + "/" + std::to_string(i % 50));
    });
  }
  writer.join();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(DaemonTest, AnIdleDaemonNeedsHardlyAnyProcessor) {
  busy_client(50, 1);  // one job alone is no reason to look often
  start_daemon();
  const auto used_ns = [&] {
    double sum = 0;
    const std::string tasks = "/proc/" + std::to_string(pid_of(daemon_)) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      double ns = 0;
      std::ifstream(task.path() / "schedstat") >> ns;
      sum += ns;
    }
    return sum;
  };
  const double used_before = used_ns();
  const std::uint64_t begin = now_ns();
  sleep_ns(3 * kNanosPerSecond);  // the span over which the ratio is taken
  const double ratio = (used_ns() - used_before) / static_cast<double>(now_ns() - begin);
  RecordProperty("cpu_ratio", std::to_string(ratio));
  EXPECT_GT(ratio, 0);
  EXPECT_LT(ratio, kSanitized ? 0.1 : 0.01);
}

TEST_F(DaemonTest, TheMinimumShareMutesTheJobAbove) {
  const int job = board_.add_job(100, 1);
  board_.job(job).min_below_permille = 200;
  const int high = board_.add_client(job), low = busy_client(0, 1);
  board_.client(high).active_ns = now_ns();
  board_.client(high).active = 1;
  board::hold_below(board_.get(), high, now_ns());
  ASSERT_NE(board_.client(low).gate.load(), 0u);
  start_daemon();
  EXPECT_TRUE(eventually([&] { return board_.client(low).gate.load() == 0; }));
  EXPECT_GT(board_.client(high).muted_until_ns.load(), 0u);
}

TEST_F(DaemonTest, StatusTellsJobsDevicesAndStrangers) {
  const int high = busy_client(100, 1), low = busy_client(0, 2);
  board_.client(low).counters.launches = 200;
  board_.client(low).counters.gated = 150;
  board_.client(low).memory_bytes = 5 << 20;
  board_.get()->jobs[board_.client(low).job.load()].memory_limit_bytes = 8 << 20;
  board::hold_below(board_.get(), high, now_ns());
  start_daemon();
  const Json status = ask({{"op", "status"}});
  EXPECT_EQ(status["daemon"]["pid"], pid_of(daemon_));
  ASSERT_EQ(status["jobs"].size(), 2u);
  const Json& above = status["jobs"][0];
  const Json& below = status["jobs"][1];
  EXPECT_EQ(above["state"], "running");
  EXPECT_EQ(above["gated_ratio"], Json()) << "nothing launched: not 0";
  EXPECT_EQ(above["memory_bytes"], Json()) << "not among NVML's processes: not 0";
  EXPECT_EQ(above["run_pid"], getpid());
  EXPECT_THAT(above["pids"].get<std::vector<int>>(), ElementsAre(getpid()));
  EXPECT_EQ(below["state"], "held");
  EXPECT_EQ(below["memory_allocated_bytes"], 5 << 20);
  EXPECT_EQ(below["memory_limit_bytes"], 8 << 20);
  EXPECT_EQ(above["memory_limit_bytes"], Json()) << "no limit: not 0";
  EXPECT_EQ(below["held_by"], Json::array({above["id"]}));
  EXPECT_EQ(below["share"], 2);
  EXPECT_EQ(below["gated_ratio"], 0.75);
  EXPECT_EQ(below["devices"], Json::array({kTestDevice}));
  EXPECT_EQ(below["bypass"], Json());
  ASSERT_EQ(status["devices"].size(), 3u);
  EXPECT_EQ(status["devices"][0]["uuid"], kTestDevice);
  EXPECT_EQ(status["devices"][0]["memory_total_bytes"], 6ull << 30);
  EXPECT_EQ(status["devices"][1]["memory_total_bytes"], Json());
  ASSERT_EQ(status["unmanaged"].size(), 100u) << "the fake's processes have no place on the board";
  EXPECT_TRUE(status["unmanaged"][0]["reason"].is_string());
}

TEST_F(DaemonTest, WithoutNvmlTheBoardsDevicesRemain) {
  setenv("SLUICE_NVML", "/nonexistent", 1);
  board_.add_job(50, 1);
  start_daemon();
  const Json status = ask({{"op", "status"}});
  ASSERT_EQ(status["devices"].size(), 1u);
  EXPECT_EQ(status["devices"][0]["uuid"], kTestDevice);
  EXPECT_EQ(status["devices"][0]["name"], "Test card");
  EXPECT_EQ(status["devices"][0]["index"], Json());
  EXPECT_EQ(status["devices"][0]["memory_used_bytes"], Json());
  EXPECT_EQ(status["devices"][0]["throttle"], Json());
  EXPECT_EQ(status["devices"][0]["lost"], Json());
  EXPECT_EQ(status["jobs"][0]["state"], "starting");
}

TEST_F(DaemonTest, ACardThatIsNotFoundAnyMoreHasFallenOffTheBus) {
  start_with_card("Temperature = 61\nCurrentClocksEventReasons = 32\ngone = [true, false, true]\n");
  go_to_sample(1);
  EXPECT_TRUE(eventually([&] { return logged("throttled: heat (driver)"); }));
  EXPECT_FALSE(logged("the card has fallen off the bus")) << "NVML may know fewer cards than there are boards";
  go_to_sample(2);
  EXPECT_TRUE(eventually([&] { return logged("the card has fallen off the bus"); }));
}

TEST_F(DaemonTest, WhatHappensToACardIsShownAndWrittenDown) {
  start_with_card("Temperature = 61\nPowerUsage = 150500\nCurrentClocksEventReasons = 68\nlost = [false, true]\n");
  EXPECT_TRUE(eventually([&] { return logged("throttled: heat (hardware)"); }));
  EXPECT_FALSE(logged("throttled: power cap")) << "that is routine";
  Json card = ask({{"op", "status"}})["devices"][0];
  EXPECT_EQ(card["temperature_c"], 61);
  EXPECT_EQ(card["power_w"], 150.5);
  EXPECT_EQ(card["power_limit_w"], Json());
  EXPECT_EQ(card["throttle"], Json::array({"power cap", "heat (hardware)"}));
  EXPECT_EQ(card["lost"], false);
  go_to_sample(1);
  EXPECT_TRUE(eventually([&] { return logged("the card has fallen off the bus"); }));
  card = ask({{"op", "status"}})["devices"][0];
  EXPECT_EQ(card["lost"], true);
  EXPECT_EQ(card["throttle"], Json());
}

TEST_F(DaemonTest, SetPriorityAndBadRequests) {
  const int job = board_.add_job(50, 1);
  start_daemon();
  const std::uint64_t id = board_.job(job).id.load();
  const std::uint32_t epoch = board_.get()->epoch.load();
  EXPECT_EQ(ask({{"op", "set_priority"}, {"job", id}, {"priority", 100}})["priority"], 100);
  EXPECT_EQ(board_.job(job).priority.load(), 100);
  EXPECT_NE(board_.get()->epoch.load(), epoch);
  const auto code = [&](Json request) { return ask(std::move(request))["error"]["code"]; };
  EXPECT_EQ(code({{"op", "set_priority"}, {"job", id + 1}, {"priority", 100}}), "NOT_FOUND");
  EXPECT_EQ(code({{"op", "set_priority"}, {"job", id}, {"priority", 5000}}), "INVALID_ARGUMENT");
  EXPECT_EQ(code({{"op", "set_priority"}, {"job", id}, {"priority", ~0ull}}), "INVALID_ARGUMENT");
  EXPECT_EQ(code({{"op", "set_priority"}, {"job", "1"}, {"priority", 1}}), "INVALID_ARGUMENT");
  EXPECT_EQ(code({{"op", "set_priority"}}), "INVALID_ARGUMENT");
  EXPECT_EQ(code({{"op", "dance"}}), "UNIMPLEMENTED");
  EXPECT_EQ(board_.job(job).priority.load(), 100);
}

TEST_F(DaemonTest, ShutdownAnswersFirst) {
  start_daemon();
  EXPECT_EQ(ask({{"op", "shutdown"}})["pid"], pid_of(daemon_));
  EXPECT_TRUE(eventually([&] { return !is_alive(daemon_); }));
}

TEST_F(DaemonTest, AKilledJobIsReaped) {
  const pid_t child = fork();
  if (child == 0) {
    board_.add_client(board_.add_job(50, 1));
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  start_daemon();
  EXPECT_TRUE(eventually([&] { return ask({{"op", "status"}})["jobs"].empty(); }));
}

TEST_F(DaemonTest, ADamagedBoardIsLeftAloneAndNamedInTheLog) {
  const std::string path = file("GPU-damaged.board");
  std::ofstream(path) << "no board";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  start_daemon();
  const Json status = ask({{"op", "status"}});
  EXPECT_TRUE(status.contains("jobs"));
  std::string log;
  ASSERT_TRUE(eventually([&] {
    std::ifstream in(file(control::kLogName));
    log.assign(std::istreambuf_iterator<char>(in), {});
    return !log.empty();
  }));
  EXPECT_THAT(log, HasSubstr("GPU-damaged"));
}

}  // namespace
}  // namespace sluice::daemon
