// The board's functions one by one, from one process. Its file is in file_test.cc, several processes are in
// board_process_test.cc.
#include "sluice/board.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "board_test_util.h"

namespace sluice::board {
namespace {

constexpr std::uint64_t kNow = 1'000'000'000'000;

class BoardTest : public ScratchBoard {
 protected:
  // A client of this process in a job of its own.
  int add(std::int32_t priority) {
    JobSpec spec;
    spec.priority = priority;
    spec.name = "test";
    const int job = *claim_job(board_, spec, own_identity());
    return *claim_client(board_, job, own_identity());
  }
  Client& client(int slot) { return board_->clients[slot]; }
  Job& job_of(int slot) { return board_->jobs[client(slot).job.load()]; }
  GateBits gate(int slot) { return client(slot).gate.load(); }
};

TEST_F(BoardTest, JobsGetIdsAndSlotsComeBack) {
  JobSpec spec;
  spec.name = "first";
  const int first = *claim_job(board_, spec, own_identity());
  EXPECT_EQ(board_->jobs[first].id.load(), 1u);
  EXPECT_STREQ(board_->jobs[first].name, "first");
  spec.id = 41;
  spec.share = 0;
  const int second = *claim_job(board_, spec, own_identity());
  EXPECT_EQ(board_->jobs[second].id.load(), 41u);
  EXPECT_EQ(board_->jobs[second].share.load(), 1u);
  spec.id = 0;
  const int third = *claim_job(board_, spec, own_identity());
  EXPECT_EQ(board_->jobs[third].id.load(), 42u);
  release_job(board_, first);
  EXPECT_EQ(board_->jobs[first].owner.load(), 0u);
}

TEST_F(BoardTest, AJobNameTooLongIsCut) {
  JobSpec spec;
  const std::string name(1000, 'n');
  spec.name = name.c_str();
  const int job = *claim_job(board_, spec, own_identity());
  EXPECT_EQ(std::strlen(board_->jobs[job].name), sizeof(Job::name) - 1);
}

TEST_F(BoardTest, JobSlotsRunOutWithAnError) {
  for (int i = 0; i < kJobs; ++i) ASSERT_TRUE(claim_job(board_, {}, own_identity()).ok());
  EXPECT_EQ(claim_job(board_, {}, own_identity()).status().code(), Code::kResourceExhausted);
}

TEST_F(BoardTest, ReapingInPortionsGoesRound) {
  const int job = *claim_job(board_, {}, own_identity());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(claim_client(board_, job, dead_identity()).ok());
  int cursor = 0;
  EXPECT_EQ(reap_some(board_, kNow, &cursor, 2), 2);
  EXPECT_EQ(reap_some(board_, kNow, &cursor, 2), 2);
  EXPECT_EQ(reap_some(board_, kNow, &cursor, 2), 1) << "the last of them, and the job, which lives";
  const int late = *claim_client(board_, job, dead_identity());
  EXPECT_LT(late, cursor);
  EXPECT_EQ(reap_some(board_, kNow, &cursor, 2), 1) << "it begins again";
  EXPECT_EQ(board_->jobs[job].owner.load(), own_identity());
}

TEST_F(BoardTest, ReapingOneJobsClientsLeavesTheOthers) {
  const int mine = *claim_job(board_, {}, own_identity());
  const int other = *claim_job(board_, {}, own_identity());
  ASSERT_TRUE(claim_client(board_, mine, dead_identity()).ok());
  ASSERT_TRUE(claim_client(board_, mine, own_identity()).ok());
  ASSERT_TRUE(claim_client(board_, other, dead_identity()).ok());
  EXPECT_EQ(reap_clients(board_, mine, kNow), 1);
  EXPECT_EQ(reap_clients(board_, mine, kNow), 0);
  EXPECT_EQ(reap(board_, kNow), 1);
}

TEST_F(BoardTest, AReleasedJobStaysUntilItsLastClientIsReaped) {
  const int slot = add(50);
  const int job = static_cast<int>(client(slot).job.load());
  release_job(board_, job);
  EXPECT_NE(board_->jobs[job].owner.load(), 0u);
  EXPECT_EQ(reap(board_, kNow), 0);
  client(slot).owner.store(dead_identity());
  EXPECT_EQ(reap(board_, kNow), 2);
  EXPECT_EQ(board_->jobs[job].owner.load(), 0u);
}

TEST_F(BoardTest, AnEndedJobTakesNoClients) {
  EXPECT_EQ(claim_client(board_, 3, own_identity()).status().code(), Code::kNotFound);
  EXPECT_EQ(claim_client(board_, -1, own_identity()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(claim_client(board_, kJobs, own_identity()).status().code(), Code::kInvalidArgument);
  for (const Client& each : board_->clients) EXPECT_EQ(each.owner.load(), 0u);
}

TEST_F(BoardTest, LowJobsLeaveBitsToThoseAboveThem) {
  JobSpec low;
  low.priority = 0;
  const int low_job = *claim_job(board_, low, own_identity());
  for (int i = 0; i < kClients - kReservedClosers; ++i) ASSERT_TRUE(claim_client(board_, low_job, own_identity()).ok());
  JobSpec high;
  high.priority = 100;
  const int high_job = *claim_job(board_, high, own_identity());
  for (int i = 0; i < kReservedClosers; ++i) {
    const int slot = *claim_client(board_, high_job, own_identity());
    EXPECT_NE(closer_bit(slot), 0u);
  }
  EXPECT_EQ(claim_client(board_, high_job, own_identity()).status().code(), Code::kResourceExhausted);
}

TEST_F(BoardTest, ALoneLowJobTakesEverySlot) {
  const int job = *claim_job(board_, {}, own_identity());
  for (int i = 0; i < kClients; ++i) ASSERT_TRUE(claim_client(board_, job, own_identity()).ok()) << i;
}

TEST_F(BoardTest, AClientWithoutABitHoldsNobody) {
  const int job = *claim_job(board_, {}, own_identity());
  for (int i = 0; i < kClients; ++i) ASSERT_TRUE(claim_client(board_, job, own_identity()).ok());
  const int without = kClients - 1;
  EXPECT_EQ(closer_bit(without), 0u);
  EXPECT_FALSE(may_hold(board_, without, kNow));
  EXPECT_EQ(hold_below(board_, without, kNow), 0);
}

TEST_F(BoardTest, HoldClosesThoseBelowAndOnlyThose) {
  const int low = add(0);
  const int low_too = add(-5);
  const int equal = add(50);
  const int high = add(50);
  const int top = add(100);
  EXPECT_EQ(hold_below(board_, high, kNow), 2);
  EXPECT_EQ(gate(low), closer_bit(high));
  EXPECT_EQ(gate(low_too), closer_bit(high));
  EXPECT_EQ(gate(equal), 0u);
  EXPECT_EQ(gate(top), 0u);
  EXPECT_EQ(gate(high), 0u);
  EXPECT_EQ(hold_below(board_, top, kNow), 4);
  EXPECT_EQ(gate(low), closer_bit(high) | closer_bit(top));
  release_held(board_, high, kNow);
  EXPECT_EQ(gate(low), closer_bit(top));
  release_held(board_, top, kNow);
  EXPECT_EQ(gate(low), 0u);
  EXPECT_EQ(client(high).counters.closes.load(), 1u);
}

TEST_F(BoardTest, HoldFollowsAChangedPriority) {
  const int low = add(0);
  const int high = add(100);
  hold_below(board_, high, kNow);
  job_of(low).priority.store(100);
  EXPECT_EQ(hold_below(board_, high, kNow), 0);
  EXPECT_EQ(gate(low), 0u);
}

TEST_F(BoardTest, AMutedClientHoldsNobody) {
  const int low = add(0);
  const int high = add(100);
  hold_below(board_, high, kNow);
  client(high).muted_until_ns.store(kNow + 100);
  EXPECT_EQ(hold_below(board_, high, kNow), 0);
  EXPECT_EQ(gate(low), 0u);
  EXPECT_EQ(hold_below(board_, high, kNow + 100), 1);
  EXPECT_EQ(gate(low), closer_bit(high));
}

TEST_F(BoardTest, HeldTimeCountsWhileWorkIsSubmitted) {
  const int low = add(0);
  const int high = add(100);
  client(low).active.store(1);
  client(low).active_ns.store(kNow - 500);
  hold_below(board_, high, kNow);
  EXPECT_EQ(client(low).closed_ns.load(), kNow);
  EXPECT_EQ(totals(board_, static_cast<int>(client(low).job.load()), kNow + 40).held_ns, 40u);
  close_gate(board_, low, kTurnBit, kNow + 10);
  release_held(board_, high, kNow + 50);
  EXPECT_EQ(client(low).counters.holds.load(), 0u) << "still closed by the turn";
  open_gate(board_, low, kTurnBit, kNow + 70);
  EXPECT_EQ(client(low).counters.held_ns.load(), 70u);
  EXPECT_EQ(client(low).counters.holds.load(), 1u);

  client(low).active_ns.store(kNow + 130);  // became active in the middle of the next hold
  hold_below(board_, high, kNow + 100);
  release_held(board_, high, kNow + 150);
  EXPECT_EQ(client(low).counters.held_ns.load(), 90u);

  client(low).active.store(0);
  hold_below(board_, high, kNow + 200);
  release_held(board_, high, kNow + 300);
  EXPECT_EQ(client(low).counters.held_ns.load(), 90u);
  EXPECT_EQ(client(low).counters.holds.load(), 2u);
  open_gate(board_, low, kTurnBit, kNow + 400);
  EXPECT_EQ(client(low).counters.holds.load(), 2u) << "an open gate is opened at no cost";
}

TEST_F(BoardTest, OneThatLeavesIsNeitherHeldNorHolds) {
  const int low = add(0);
  const int middle = add(50);
  const int high = add(100);
  hold_below(board_, high, kNow);
  hold_below(board_, middle, kNow);
  const std::uint32_t epoch = board_->epoch.load();
  leave(board_, middle);
  EXPECT_NE(board_->epoch.load(), epoch);
  EXPECT_EQ(gate(middle), 0u);
  EXPECT_EQ(gate(low), closer_bit(high));
  EXPECT_EQ(hold_below(board_, middle, kNow), 0);
  EXPECT_EQ(hold_below(board_, high, kNow), 1);
  close_gate(board_, middle, kTurnBit, kNow);
  EXPECT_EQ(gate(middle), 0u);
  EXPECT_EQ(client(middle).owner.load(), own_identity()) << "the slot is not reused before the process is gone";
}

TEST_F(BoardTest, CheckKeepsAHolderThatMakesProgress) {
  const int low = add(0);
  const int high = add(100);
  hold_below(board_, high, kNow);
  for (std::uint64_t t = 0; t < 10 * kStallNs; t += kStallNs / 2) {
    client(high).progress.fetch_add(1);
    client(high).progress_ns.store(kNow + t);
    EXPECT_EQ(check_holders(board_, low, kNow + t), 0u);
  }
  EXPECT_EQ(gate(low), closer_bit(high));
}

TEST_F(BoardTest, CheckDropsAHolderThatIsStuckUntilItMoves) {
  const int low = add(0);
  const int other = add(10);
  const int high = add(100);
  client(high).progress_ns.store(kNow - 10 * kStallNs);
  client(high).active_ns.store(kNow);
  hold_below(board_, high, kNow);
  EXPECT_EQ(check_holders(board_, low, kNow + kStallNs), 0u);
  EXPECT_EQ(check_holders(board_, low, kNow + kStallNs + 1), closer_bit(high));
  EXPECT_EQ(gate(low), 0u);
  EXPECT_EQ(check_holders(board_, other, kNow + kStallNs + 1), closer_bit(high));
  EXPECT_EQ(client(high).counters.stalls.load(), 1u) << "one stall, however many it held";
  EXPECT_FALSE(may_hold(board_, high, kNow + kStallNs + 2));
  EXPECT_EQ(hold_below(board_, high, kNow + kStallNs + 2), 0);
  client(high).progress.fetch_add(1);
  client(high).progress_ns.store(kNow + kStallNs + 3);
  EXPECT_EQ(hold_below(board_, high, kNow + kStallNs + 3), 2);
  EXPECT_EQ(check_holders(board_, low, kNow + kStallNs + 4), 0u);
}

TEST_F(BoardTest, HoldAgainSeesNewcomersDropsAndMutes) {
  add(0);
  const int high = add(100);
  Holding holding;
  EXPECT_TRUE(hold_again(board_, high, holding, kNow)) << "nothing was held yet";
  ASSERT_EQ(hold_below(board_, high, kNow, &holding), 1);
  EXPECT_FALSE(hold_again(board_, high, holding, kNow));

  add(0);  // the newcomer is not held yet
  EXPECT_TRUE(hold_again(board_, high, holding, kNow));
  ASSERT_EQ(hold_below(board_, high, kNow, &holding), 2);

  client(high).dropped_at.store(client(high).progress.load() + 1);
  EXPECT_FALSE(hold_again(board_, high, holding, kNow)) << "it may not";
  ASSERT_EQ(hold_below(board_, high, kNow, &holding), 0);
  client(high).progress.fetch_add(1);
  EXPECT_TRUE(hold_again(board_, high, holding, kNow)) << "though dropped_at is what it was at the last call";
  ASSERT_EQ(hold_below(board_, high, kNow, &holding), 2);

  client(high).muted_until_ns.store(kNow + 10);
  ASSERT_EQ(hold_below(board_, high, kNow, &holding), 0);
  EXPECT_FALSE(hold_again(board_, high, holding, kNow));
  EXPECT_TRUE(hold_again(board_, high, holding, kNow + 10));
}

TEST_F(BoardTest, CheckRemovesTheDeadTheMutedTheEqualAndTheGone) {
  const int low = add(0);
  const int high = add(100);
  const auto hold = [&] {
    hold_below(board_, high, kNow);
    ASSERT_EQ(gate(low), closer_bit(high));
  };
  hold();
  client(high).owner.store(dead_identity());
  EXPECT_EQ(check_holders(board_, low, kNow), closer_bit(high));
  client(high).owner.store(own_identity());
  hold();
  client(high).muted_until_ns.store(kNow + 1);
  EXPECT_EQ(check_holders(board_, low, kNow), closer_bit(high));
  client(high).muted_until_ns.store(0);
  hold();
  job_of(low).priority.store(100);
  EXPECT_EQ(check_holders(board_, low, kNow), closer_bit(high));
  job_of(low).priority.store(0);
  hold();
  client(high).live.store(0);
  EXPECT_EQ(check_holders(board_, low, kNow), closer_bit(high));
}

TEST_F(BoardTest, CheckOpensTheTurnOfADeadOrStoppedDaemonOnly) {
  const int low = add(0);
  close_gate(board_, low, kTurnBit | kSpareBit, kNow - 10 * kStallNs);
  board_->daemon.store(own_identity());
  board_->daemon_ns.store(kNow);
  EXPECT_EQ(check_holders(board_, low, kNow), 0u);
  EXPECT_EQ(check_holders(board_, low, kNow + kStallNs + 1), kTurnBit);
  EXPECT_EQ(gate(low), kSpareBit);
  close_gate(board_, low, kTurnBit, kNow);
  board_->daemon.store(dead_identity());
  EXPECT_EQ(check_holders(board_, low, kNow), kTurnBit);
  EXPECT_EQ(gate(low), kSpareBit);
  close_gate(board_, low, kTurnBit, kNow);
  board_->daemon.store(0);
  EXPECT_EQ(check_holders(board_, low, kNow), kTurnBit);
}

TEST_F(BoardTest, ReapFreesTheDeadAndKeepsTheirFigures) {
  const int low = add(0);
  const int high = add(100);
  const int job = static_cast<int>(client(high).job.load());
  const int survivor = *claim_client(board_, job, own_identity());
  hold_below(board_, high, kNow);
  for (int slot : {high, survivor}) {
    client(slot).counters.launches.store(100);
    client(slot).counters.gpu_ns.store(7);
    LongKernel& kernel = client(slot).long_kernels[0];
    std::strcpy(kernel.name, "big_gemm");
    kernel.longest_ns.store(slot == high ? 900'001 : 500'001);
    kernel.launches.store(3);
  }
  client(high).owner.store(dead_identity());
  const std::uint32_t epoch = board_->epoch.load();
  EXPECT_EQ(totals(board_, job, kNow).launches, 200u);
  EXPECT_EQ(totals(board_, job, kNow).clients, 1);
  EXPECT_EQ(reap(board_, kNow), 1);
  EXPECT_EQ(reap(board_, kNow), 0);
  EXPECT_NE(board_->epoch.load(), epoch);
  EXPECT_EQ(gate(low), 0u);
  EXPECT_EQ(client(high).owner.load(), 0u);
  const JobTotals sum = totals(board_, job, kNow);
  EXPECT_EQ(sum.launches, 200u);
  EXPECT_EQ(sum.gpu_ns, 14u);
  EXPECT_EQ(sum.clients, 1);
  EXPECT_EQ(sum.clients_seen, 2u);
  EXPECT_STREQ(sum.long_kernels[0].name, "big_gemm");
  EXPECT_EQ(sum.long_kernels[0].launches, 6u);
  EXPECT_EQ(sum.long_kernels[0].longest_ns, 900'001u);
  EXPECT_EQ(sum.long_kernels[1].launches, 0u);
}

TEST_F(BoardTest, AnotherStartTimeOfTheSamePidIsDead) {
  const int slot = add(0);
  client(slot).owner.store(own_identity() + (ProcessIdentity{1} << kPidBits));
  EXPECT_EQ(reap(board_, kNow), 1);
  EXPECT_EQ(client(slot).owner.load(), 0u);
}

TEST_F(BoardTest, AReusedSlotStartsClean) {
  const int slot = add(0);
  client(slot).active.store(1);
  client(slot).counters.launches.store(5);
  client(slot).dropped_at.store(9);
  close_gate(board_, slot, kSpareBit | kTurnBit, kNow);
  client(slot).owner.store(dead_identity());
  ASSERT_EQ(reap(board_, kNow), 1);
  ASSERT_EQ(add(0), slot);
  EXPECT_EQ(gate(slot), 0u);
  EXPECT_EQ(client(slot).active.load(), 0u);
  EXPECT_EQ(client(slot).counters.launches.load(), 0u);
  EXPECT_EQ(client(slot).dropped_at.load(), 0u);
}

TEST_F(BoardTest, AFullBoardOfDeadProcessesIsReapedByTheNextClaim) {
  const int job = *claim_job(board_, {}, own_identity());
  for (int i = 0; i < kClients; ++i) client(*claim_client(board_, job, own_identity())).owner.store(dead_identity());
  EXPECT_TRUE(claim_client(board_, job, own_identity()).ok());
}

TEST_F(BoardTest, EveryBypassHasAText) {
  EXPECT_STREQ(bypass_text(Bypass::kNone), "");
  for (Bypass bypass : {Bypass::kNoMemOps, Bypass::kRegisterFailed, Bypass::kNoSlot}) {
    EXPECT_GT(std::strlen(bypass_text(bypass)), 10u);
  }
}

TEST_F(BoardTest, TheCommonestReasonForWholeGraphsIsNamed) {
  JobTotals totals = {};
  EXPECT_EQ(whole_graphs(totals).reason, nullptr);
  totals.graphs_whole[static_cast<int>(Whole::kByHand)] = 2;
  totals.graphs_whole[static_cast<int>(Whole::kFromDevice)] = 3;
  EXPECT_EQ(whole_graphs(totals).launches, 5u);
  EXPECT_STREQ(whole_graphs(totals).reason, whole_text(Whole::kFromDevice));
}

}  // namespace
}  // namespace sluice::board
