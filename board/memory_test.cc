// What clients hold of their GPU's memory, and a job's limit. Several processes are in board_process_test.cc.
#include <gtest/gtest.h>

#include "board_test_util.h"
#include "sluice/base/clock.h"

namespace sluice::board {
namespace {

class MemoryTest : public ScratchBoard {
 protected:
  int add_job(std::uint64_t limit, bool waiting = false) {
    JobSpec spec;
    spec.memory_limit_bytes = limit;
    spec.waiting = waiting;
    spec.name = "test";
    return *claim_job(board_, spec, own_identity());
  }
  int add_client(int job) { return *claim_client(board_, job, own_identity()); }
  std::uint64_t held(int client) const { return board_->clients[client].memory_bytes.load(); }
  void kill_client(int client) {
    board_->clients[client].owner.store(dead_identity());
    reap(board_, now_ns());
  }
};

TEST_F(MemoryTest, WithoutALimitEverythingIsCounted) {
  const int job = add_job(0), client = add_client(job);
  EXPECT_TRUE(reserve_memory(board_, client, ~std::uint64_t{0} / 4));
  EXPECT_EQ(memory_of(board_, job), ~std::uint64_t{0} / 4);
  EXPECT_EQ(memory_promised(board_, -1), 0u);
}

TEST_F(MemoryTest, TheLimitIsForAllProcessesOfTheJobTogether) {
  const int job = add_job(100), one = add_client(job), other = add_client(job);
  EXPECT_TRUE(reserve_memory(board_, one, 60));
  EXPECT_FALSE(reserve_memory(board_, other, 41));
  EXPECT_EQ(held(other), 0u);
  EXPECT_TRUE(reserve_memory(board_, other, 40));
  EXPECT_FALSE(reserve_memory(board_, one, 1));
  EXPECT_FALSE(reserve_memory(board_, one, ~std::uint64_t{0}));
  EXPECT_TRUE(reserve_memory(board_, one, 0));
  release_memory(board_, one, 60);
  EXPECT_TRUE(reserve_memory(board_, other, 60));
  EXPECT_EQ(totals(board_, job, now_ns()).memory_bytes, 100u);
  EXPECT_EQ(totals(board_, job, now_ns()).memory_limit_bytes, 100u);
}

TEST_F(MemoryTest, AnotherJobIsNotCounted) {
  const int job = add_job(100), client = add_client(job);
  const int other = add_client(add_job(1000));
  EXPECT_TRUE(reserve_memory(board_, other, 1000));
  EXPECT_TRUE(reserve_memory(board_, client, 100));
}

TEST_F(MemoryTest, NothingGoesBelowZero) {
  const int client = add_client(add_job(100));
  add_memory(board_, client, 10);
  release_memory(board_, client, 11);
  EXPECT_EQ(held(client), 0u);
}

TEST_F(MemoryTest, WhatTheDriverTookBeyondTheLimitLeavesNothingForOthers) {
  const int client = add_client(add_job(100));
  add_memory(board_, client, 120);
  EXPECT_FALSE(reserve_memory(board_, client, 1));
  release_memory(board_, client, 21);
  EXPECT_TRUE(reserve_memory(board_, client, 1));
}

TEST_F(MemoryTest, TheDeadHoldNothing) {
  const int job = add_job(100), dead = add_client(job), client = add_client(job);
  ASSERT_TRUE(reserve_memory(board_, dead, 100));
  kill_client(dead);
  EXPECT_EQ(memory_of(board_, job), 0u);
  EXPECT_TRUE(reserve_memory(board_, client, 100));
  // Its slot starts anew.
  EXPECT_EQ(add_client(job), dead);
  EXPECT_EQ(held(dead), 0u);
}

TEST_F(MemoryTest, ARefusalLooksForTheDeadFirst) {
  const int job = add_job(100), dead = add_client(job), client = add_client(job);
  ASSERT_TRUE(reserve_memory(board_, dead, 100));
  board_->clients[dead].owner.store(dead_identity());
  EXPECT_EQ(memory_of(board_, job), 0u);
  EXPECT_TRUE(reserve_memory(board_, client, 100));
}

TEST_F(MemoryTest, ATurnThatNobodyEndsIsTaken) {
  const int job = add_job(100), client = add_client(job);
  board_->jobs[job].memory_turn.store(7 << 8 | 1);
  EXPECT_TRUE(reserve_memory(board_, client, 100));
  EXPECT_FALSE(reserve_memory(board_, client, 1));
}

TEST_F(MemoryTest, PromisedIsWhatTheRunningMayStillTake) {
  const int job = add_job(100), client = add_client(job);
  const int other = add_job(50);
  add_job(1000, true);  // waits: nothing is promised to it yet
  EXPECT_TRUE(reserve_memory(board_, client, 30));
  EXPECT_EQ(memory_promised(board_, -1), 120u);
  EXPECT_EQ(memory_promised(board_, other), 70u);
  add_memory(board_, client, 100);
  EXPECT_EQ(memory_promised(board_, -1), 50u);
  board_->jobs[other].waiting.store(static_cast<std::uint32_t>(MemoryWait::kEnded));
  EXPECT_EQ(memory_promised(board_, -1), 0u);
}

TEST_F(MemoryTest, RanksOfOneProgramPromiseEachOtherNothing) {
  const int first = add_job(100), second = add_job(100), other = add_job(50);
  board_->jobs[second].id.store(board_->jobs[first].id.load());
  EXPECT_EQ(memory_promised(board_, first), 50u);
  EXPECT_EQ(memory_promised(board_, second), 50u);
  EXPECT_EQ(memory_promised(board_, other), 200u);
  for (const int job : {first, second, other}) board_->jobs[job].id.store(0);
  EXPECT_EQ(memory_promised(board_, first), 150u) << "without ids they are two";
}

TEST_F(MemoryTest, TheFirstToWaitIsTheFirstToStart) {
  add_job(100);
  const int first = add_job(100, true), second = add_job(100, true);
  EXPECT_FALSE(others_wait_before(board_, first));
  EXPECT_TRUE(others_wait_before(board_, second));
  for (const MemoryWait over : {MemoryWait::kNone, MemoryWait::kEnded}) {
    board_->jobs[first].waiting.store(static_cast<std::uint32_t>(over));
    EXPECT_FALSE(others_wait_before(board_, second));
  }
  board_->jobs[first].waiting.store(1);
  board_->jobs[first].owner.store(dead_identity());
  EXPECT_FALSE(others_wait_before(board_, second));
}

}  // namespace
}  // namespace sluice::board
