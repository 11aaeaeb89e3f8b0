#include "links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/base/clock.h"

namespace sluice::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kNow = 1'000'000'000;

policy::JobView job(std::uint64_t id, int priority, bool active, bool held) {
  policy::JobView view;
  view.id = id;
  view.priority = priority;
  view.active = active;
  view.held_from_above = held;
  return view;
}

class LinksTest : public testing::Test {
 protected:
  // Of two boards; returns when to look again.
  std::uint64_t decide(std::vector<policy::JobView> first, std::vector<policy::JobView> second,
                       std::uint64_t now = kNow) {
    views_ = {{now, std::move(first)}, {now, std::move(second)}};
    decisions_.assign(2, {});
    links_.mark(&views_);
    return links_.link(views_, &decisions_);
  }
  Links links_;
  std::vector<policy::Snapshot> views_;
  std::vector<policy::Decision> decisions_;
};

TEST_F(LinksTest, AJobHeldOnOneGpuIsClosedOnTheOtherAndHoldsNobodyThere) {
  const std::uint64_t next = decide({job(1, 0, true, true), job(9, 100, true, false)}, {job(1, 0, true, false)});
  EXPECT_THAT(decisions_[0].closed, IsEmpty()) << "there the job above holds it";
  EXPECT_THAT(decisions_[1].closed, ElementsAre(1u));
  ASSERT_EQ(decisions_[1].mutes.size(), 1u);
  EXPECT_EQ(decisions_[1].mutes[0].id, 1u);
  EXPECT_GT(decisions_[1].mutes[0].until_ns, kNow);
  EXPECT_LE(next, kNow + kNanosPerMilli);
}

TEST_F(LinksTest, WhatIsClosedHereKeepsNothingElseClosed) {
  decide({job(1, 0, true, true)}, {job(1, 0, true, false)});
  // The hold from above has gone; on the second board the job is still closed by us, which is no hold from above.
  decide({job(1, 0, true, false)}, {job(1, 0, true, false)}, kNow + kNanosPerMilli);
  EXPECT_THAT(decisions_[0].closed, IsEmpty());
  EXPECT_THAT(decisions_[1].closed, IsEmpty());
  EXPECT_THAT(decisions_[1].mutes, IsEmpty());
}

TEST_F(LinksTest, JobsOfOneGpuAreLeftAlone) {
  EXPECT_EQ(decide({job(1, 0, true, true), job(9, 100, true, false)}, {job(2, 0, true, false)}), ~std::uint64_t{0});
  EXPECT_THAT(decisions_[0].closed, IsEmpty());
  EXPECT_THAT(decisions_[1].closed, IsEmpty());
  EXPECT_TRUE(views_[0].jobs[0].takes_turns);
}

TEST_F(LinksTest, JobsOfSeveralGpusTakeNoTurns) {
  decide({job(1, 50, true, false), job(2, 50, true, false)}, {job(1, 50, true, false)});
  EXPECT_FALSE(views_[0].jobs[0].takes_turns);
  EXPECT_TRUE(views_[0].jobs[1].takes_turns);
  EXPECT_FALSE(views_[1].jobs[0].takes_turns);
}

TEST_F(LinksTest, ItLooksOftenWhileAJobAboveComesAndGoes) {
  const auto look = [&](bool above_works, std::uint64_t now) {
    return decide({job(1, 0, true, false), job(9, 100, above_works, false)}, {job(1, 0, true, false)}, now);
  };
  EXPECT_EQ(look(false, kNow), ~std::uint64_t{0});
  EXPECT_LE(look(true, kNow + 1), kNow + kNanosPerMilli);
  EXPECT_LE(look(false, kNow + 50 * kNanosPerMilli), kNow + 51 * kNanosPerMilli) << "it may come again soon";
  EXPECT_EQ(look(false, kNow + 200 * kNanosPerMilli), ~std::uint64_t{0});
}

TEST_F(LinksTest, GatesAreNeededEverywhereWhileAJobAboveIsOnOneOfItsGpus) {
  decide({job(1, 0, true, false), job(9, 100, false, false)}, {job(1, 0, false, false), job(2, 0, true, false)});
  EXPECT_EQ(links_.gpus_of(1), 2u);
  EXPECT_EQ(links_.gpus_of(2), 1u);
  EXPECT_EQ(links_.gpus_of(9), 1u);
  decide({job(1, 0, true, false), job(9, 0, true, false)}, {job(1, 0, false, false)}, kNow + 1);
  EXPECT_EQ(links_.gpus_of(1), 1u) << "equals do not hold it";
}

TEST_F(LinksTest, ARankThatIsGoneUnlinksTheRest) {
  decide({job(1, 0, true, true)}, {job(1, 0, true, false)});
  decide({}, {job(1, 0, true, false)}, kNow + 1);
  EXPECT_THAT(decisions_[1].closed, IsEmpty());
  EXPECT_TRUE(views_[1].jobs[0].takes_turns);
}

}  // namespace
}  // namespace sluice::daemon
