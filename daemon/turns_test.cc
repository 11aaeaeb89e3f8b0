#include "turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_board.h"

namespace sluice::daemon {
namespace {

constexpr std::uint64_t kNow = 1'000'000'000;

class Turns : public testing::Test {
 protected:
  TestBoard board_;
};

TEST_F(Turns, AJobOfSeveralProcessesIsOneView) {
  const int job = board_.add_job(50, 3);
  board_.add_job(50, 1);  // no process yet: not part of it
  const int one = board_.add_client(job), other = board_.add_client(job);
  board_.client(one).active = 1;
  board_.client(one).active_ns = 700;
  board_.client(one).progress_ns = 800;
  board_.client(one).counters.held_ns = 10;
  board_.client(other).tail_ns = 30;
  board_.client(other).progress_ns = 900;
  board_.client(other).counters.held_ns = 20;
  const policy::Snapshot seen = snapshot(*board_.get(), kNow);
  ASSERT_EQ(seen.jobs.size(), 1u);
  const policy::JobView& view = seen.jobs[0];
  EXPECT_EQ(view.id, board_.job(job).id.load());
  EXPECT_EQ(view.share, 3u);
  EXPECT_TRUE(view.active);
  EXPECT_EQ(view.active_since_ns, 700u);
  EXPECT_EQ(view.progress_ns, 900u);
  EXPECT_EQ(view.tail_ns, 30u);
  EXPECT_EQ(view.held_ns, 20u);
  EXPECT_TRUE(view.can_be_closed);
}

TEST_F(Turns, HeldTimeCountsThePresentAndWhoHolds) {
  const int high = board_.add_client(board_.add_job(100, 1)), low = board_.add_client(board_.add_job(0, 1));
  board_.client(low).active_ns = kNow - 100;
  board_.client(low).active = 1;
  ASSERT_EQ(board::hold_below(board_.get(), high, kNow), 1);
  const policy::Snapshot seen = snapshot(*board_.get(), kNow + 500);
  ASSERT_EQ(seen.jobs.size(), 2u);
  const policy::JobView& view = seen.jobs[seen.jobs[0].priority == 0 ? 0 : 1];
  EXPECT_TRUE(view.held_from_above);
  EXPECT_EQ(view.held_ns, 500u);
}

TEST_F(Turns, ContendedIsWhereAPolicyCouldDecide) {
  const int high = board_.add_job(100, 1), low = board_.add_job(0, 1);
  const int a = board_.add_client(high), b = board_.add_client(low);
  board_.client(a).active = 1;
  board_.client(b).active = 1;
  EXPECT_FALSE(contended(snapshot(*board_.get(), kNow))) << "strict priority needs no daemon";
  board_.job(high).min_below_permille = 10;
  EXPECT_TRUE(contended(snapshot(*board_.get(), kNow)));
  board_.job(high).min_below_permille = 0;
  board_.job(high).priority = 0;
  EXPECT_TRUE(contended(snapshot(*board_.get(), kNow)));
  board_.client(a).active = 0;
  EXPECT_FALSE(contended(snapshot(*board_.get(), kNow)));
}

TEST_F(Turns, ADecisionClosesAllProcessesOfAJobAndOpensTheRest) {
  const int one = board_.add_job(50, 1), other = board_.add_job(50, 1);
  const int a = board_.add_client(one), b = board_.add_client(one), c = board_.add_client(other);
  policy::Decision decision;
  decision.closed = {board_.job(one).id.load()};
  apply(board_.get(), decision, kNow);
  EXPECT_EQ(board_.client(a).gate.load(), board::kTurnBit);
  EXPECT_EQ(board_.client(b).gate.load(), board::kTurnBit);
  EXPECT_EQ(board_.client(c).gate.load(), 0u);
  decision.closed = {board_.job(other).id.load()};
  apply(board_.get(), decision, kNow);
  EXPECT_EQ(board_.client(a).gate.load(), 0u);
  EXPECT_EQ(board_.client(c).gate.load(), board::kTurnBit);
  apply(board_.get(), {}, kNow);
  EXPECT_EQ(board_.client(c).gate.load(), 0u);
}

TEST_F(Turns, AProcessWhoseGateDoesNotWorkIsNotClosed) {
  const int job = board_.add_job(50, 1);
  const int client = board_.add_client(job);
  board_.client(client).bypass = static_cast<std::uint32_t>(board::Bypass::kNoMemOps);
  EXPECT_FALSE(snapshot(*board_.get(), kNow).jobs.at(0).can_be_closed);
  policy::Decision decision;
  decision.closed = {board_.job(job).id.load()};
  apply(board_.get(), decision, kNow);
  EXPECT_EQ(board_.client(client).gate.load(), 0u);
}

TEST_F(Turns, AMuteOpensWhatTheJobHoldsAndKeepsItFromHolding) {
  const int high = board_.add_job(100, 1);
  const int above = board_.add_client(high), below = board_.add_client(board_.add_job(0, 1));
  ASSERT_EQ(board::hold_below(board_.get(), above, kNow), 1);
  policy::Decision decision;
  decision.mutes = {{board_.job(high).id.load(), kNow + 100}};
  apply(board_.get(), decision, kNow);
  EXPECT_EQ(board_.client(below).gate.load(), 0u);
  EXPECT_EQ(board::hold_below(board_.get(), above, kNow + 50), 0);
  EXPECT_EQ(board::hold_below(board_.get(), above, kNow + 150), 1);
}

}  // namespace
}  // namespace sluice::daemon
