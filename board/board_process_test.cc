// The board under several processes and threads, killed at every step of the protocol.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "board_test_util.h"
#include "internal.h"
#include "sluice/base/clock.h"

namespace sluice::board {

static const char* die_at = nullptr;

void step(const char* name) {
  if (die_at != nullptr && std::strcmp(die_at, name) == 0) kill(getpid(), SIGKILL);
}

namespace {

constexpr std::uint64_t kNow = 1'000'000'000'000;

int claim(Board* board, std::int32_t priority, ProcessIdentity owner) {
  JobSpec spec;
  spec.priority = priority;
  Result<int> job = claim_job(board, spec, owner);
  if (!job.ok()) return -1;
  Result<int> slot = claim_client(board, *job, owner);
  return slot.ok() ? *slot : -1;
}

// Runs `body` in a child and returns its wait status.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

int slots_in_use(const Board* board) {
  int used = 0;
  for (const Client& client : board->clients) used += client.owner.load() != 0 ? 1 : 0;
  for (const Job& job : board->jobs) used += job.owner.load() != 0 ? 1 : 0;
  return used;
}

class DeathTest : public ScratchBoard, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeathTest, NothingDeadHoldsOrKeepsASlot) {
  const int low = claim(board_, 0, own_identity());
  const int low_job = static_cast<int>(board_->clients[low].job.load());
  // Something for the child to reap: a dead job above, whose client holds `low`, and a dead client of the low job.
  const int dead = claim(board_, 100, own_identity());
  ASSERT_EQ(hold_below(board_, dead, kNow), 1);
  board_->jobs[board_->clients[dead].job.load()].owner.store(dead_identity());
  board_->clients[dead].owner.store(dead_identity());
  const int ended = *claim_client(board_, low_job, own_identity());
  board_->clients[ended].counters.launches.store(10);
  board_->clients[ended].owner.store(dead_identity());

  const int status = in_child([&] {
    die_at = GetParam();
    const int high = claim(board_, 100, own_identity());
    if (high < 0 || hold_below(board_, high, kNow) < 1) return 1;
    release_held(board_, high, kNow);
    hold_below(board_, high, kNow);
    reap(board_, kNow);
    leave(board_, high);
    return 0;
  });
  ASSERT_TRUE(was_killed(status)) << "the step was never reached";

  check_holders(board_, low, kNow);
  EXPECT_EQ(board_->clients[low].gate.load(), 0u) << "held by something dead";
  reap(board_, kNow);
  EXPECT_EQ(slots_in_use(board_), 2) << "only the low job and its one process are left";
  for (const Client& client : board_->clients) EXPECT_EQ(client.gate.load(), 0u);
  EXPECT_EQ(totals(board_, low_job, kNow).launches, 10u) << "counted once, also when the reaper died";
  EXPECT_EQ(reap(board_, kNow), 0);
}

INSTANTIATE_TEST_SUITE_P(EachStep, DeathTest,
                         ::testing::Values("claim: job owned", "claim: job filled", "claim: owned", "claim: job named",
                                           "claim: filled", "close: bit set", "hold: one closed", "release: one opened",
                                           "reap: taken", "reap: not live", "reap: bits cleared", "reap: merged",
                                           "reap: wiped", "reap: job not live", "reap: job wiped", "leave: not live"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == ' ' || c == ':' ? '_' : c;
                           return name;
                         });

class ProcessTest : public ScratchBoard {};

TEST_F(ProcessTest, ACreatorKilledHalfWayLeavesNothing) {
  const std::string path = directory_ + "/half.board";
  EXPECT_TRUE(was_killed(in_child([&] {
    die_at = "create: filled";
    return map(path.c_str(), kDevice).ok() ? 0 : 1;
  })));
  EXPECT_EQ(names_in_directory(), 1);
  Result<Board*> board = map(path.c_str(), kDevice);
  ASSERT_TRUE(board.ok()) << board.status().message();
  unmap(*board);
}

TEST_F(ProcessTest, ManyCreatorsMakeOneBoard) {
  const std::string path = directory_ + "/race.board";
  constexpr int kProcesses = 16;
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      char byte;
      close(go[1]);
      if (read(go[0], &byte, 1) != 0) _exit(2);
      Result<Board*> board = map(path.c_str(), kDevice);
      if (!board.ok()) _exit(1);
      (*board)->next_job_id.fetch_add(1);
      _exit(0);
    }
    children.push_back(child);
  }
  close(go[0]);
  close(go[1]);  // all start at once
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  Board* board = *map(path.c_str());
  EXPECT_EQ(board->next_job_id.load(), 1u + kProcesses);
  unmap(board);
  EXPECT_EQ(names_in_directory(), 2);
}

TEST_F(ProcessTest, TwoThousandKilledJobsLeaveNoSlot) {
  const int low = claim(board_, 0, own_identity());
  for (int i = 0; i < 2000; ++i) {
    const int status = in_child([&] {
      const int high = claim(board_, 100, own_identity());
      if (high < 0 || hold_below(board_, high, kNow) != 1) return 1;
      kill(getpid(), SIGKILL);
      return 2;
    });
    ASSERT_TRUE(was_killed(status)) << "job " << i << " found no slot, or nothing to hold";
    check_holders(board_, low, kNow);
    ASSERT_EQ(board_->clients[low].gate.load(), 0u);
  }
  reap(board_, kNow);
  EXPECT_EQ(slots_in_use(board_), 2);
  EXPECT_EQ(names_in_directory(), 1);
}

TEST_F(ProcessTest, AStoppedHolderIsDroppedAndItsSlotKept) {
  const int low = claim(board_, 0, own_identity());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int high = claim(board_, 100, own_identity());
    hold_below(board_, high, kNow);
    board_->clients[high].progress_ns.store(kNow);
    board_->clients[high].active_ns.store(kNow);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(check_holders(board_, low, kNow + kStallNs), 0u);
  EXPECT_NE(check_holders(board_, low, kNow + kStallNs + 1), 0u);
  EXPECT_EQ(reap(board_, kNow), 0) << "stopped is not dead";
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(reap(board_, kNow), 2);
}

// Threads stand for processes: each loop claims, holds, releases and "dies" while others check and reap. What is left
// afterwards must be open, free and consistent.
TEST_F(ProcessTest, EverythingAtOnce) {
  const int low = claim(board_, 0, own_identity());
  board_->clients[low].active.store(1);
  JobSpec spec;
  spec.priority = 100;
  const int high_job = *claim_job(board_, spec, own_identity());
  spec.priority = 50;
  const int middle_job = *claim_job(board_, spec, own_identity());
  const ProcessIdentity self = own_identity();
  std::atomic<int> running{0};
  std::atomic<int> failures{0};
  const auto churn = [&](int job) {
    for (int i = 0; i < 300; ++i) {
      Result<int> slot = claim_client(board_, job, self);
      if (!slot.ok()) {
        failures.fetch_add(1);
        continue;
      }
      board_->clients[*slot].counters.launches.fetch_add(1);
      hold_below(board_, *slot, now_ns());
      if (i % 3 == 0) release_held(board_, *slot, now_ns());
      if (i % 5 == 0) leave(board_, *slot);
      board_->clients[*slot].owner.store(dead_identity());
    }
    running.fetch_sub(1);
  };
  std::vector<std::thread> threads;
  running.store(3);
  threads.emplace_back(churn, high_job);
  threads.emplace_back(churn, high_job);
  threads.emplace_back(churn, middle_job);
  threads.emplace_back([&] {
    while (running.load() > 0) {
      reap(board_, now_ns());
      close_gate(board_, low, kTurnBit, now_ns());
      open_gate(board_, low, kTurnBit, now_ns());
    }
  });
  threads.emplace_back([&] {
    while (running.load() > 0) {
      check_holders(board_, low, now_ns());
      totals(board_, high_job, now_ns());
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  reap(board_, now_ns());
  for (const Client& client : board_->clients) EXPECT_EQ(client.gate.load(), 0u);
  EXPECT_EQ(slots_in_use(board_), 4);
  EXPECT_EQ(totals(board_, high_job, now_ns()).launches, 600u);
  EXPECT_EQ(totals(board_, middle_job, now_ns()).launches, 300u);
  EXPECT_EQ(totals(board_, high_job, now_ns()).clients_seen, 600u);
}

// ---- memory

class MemoryDeathTest : public ScratchBoard, public ::testing::WithParamInterface<const char*> {};

// Killed in the middle of a reservation: the next one goes on, and nothing of the dead is counted.
TEST_P(MemoryDeathTest, AReservationCutShortLeavesNothing) {
  JobSpec spec;
  spec.memory_limit_bytes = 100;
  const int job = *claim_job(board_, spec, own_identity());
  const int own = *claim_client(board_, job, own_identity());
  const int status = in_child([&] {
    const Result<int> client = claim_client(board_, job, own_identity());
    die_at = GetParam();
    return client.ok() && reserve_memory(board_, *client, 70) ? 0 : 1;
  });
  ASSERT_TRUE(was_killed(status));
  EXPECT_TRUE(reserve_memory(board_, own, 100));
  EXPECT_FALSE(reserve_memory(board_, own, 1));
  EXPECT_EQ(memory_of(board_, job), 100u);
}
INSTANTIATE_TEST_SUITE_P(At, MemoryDeathTest, ::testing::Values("reserve: turn taken", "reserve: added"),
                         [](const auto& test) { return test.index == 0 ? "TurnTaken" : "Added"; });

class MemoryRaceTest : public ScratchBoard {};

// Threads play the processes: all share one limit, and at no time is more than that held.
TEST_F(MemoryRaceTest, TogetherTheyNeverHoldMoreThanTheLimit) {
  constexpr int kThreads = 4, kRounds = 2000;
  constexpr std::uint64_t kLimit = 100, kPiece = 30;
  JobSpec spec;
  spec.memory_limit_bytes = kLimit;
  const int job = *claim_job(board_, spec, own_identity());
  std::atomic<std::uint64_t> held{0}, granted{0};
  std::atomic<bool> too_much{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    const int client = *claim_client(board_, job, own_identity());
    threads.emplace_back([&, client] {
      for (int round = 0; round < kRounds; ++round) {
        if (!reserve_memory(board_, client, kPiece)) continue;
        granted.fetch_add(1);
        if (held.fetch_add(kPiece) + kPiece > kLimit) too_much.store(true);
        held.fetch_sub(kPiece);
        release_memory(board_, client, kPiece);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(too_much.load());
  EXPECT_GT(granted.load(), 0u);
  EXPECT_EQ(memory_of(board_, job), 0u);
}

}  // namespace
}  // namespace sluice::board
