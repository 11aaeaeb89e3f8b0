#include "caps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "care.h"

namespace sluice::daemon {
namespace {

policy::Snapshot jobs(std::initializer_list<int> priorities) {
  policy::Snapshot view;
  for (const int priority : priorities) {
    policy::JobView& job = view.jobs.emplace_back();
    job.id = view.jobs.size();
    job.priority = priority;
  }
  return view;
}

// The part of the time that the job with this id is not closed, over some cycles, looked at as the daemon does.
double open_part(policy::Snapshot view, double ratio, std::uint64_t id) {
  constexpr std::uint64_t kEnd = 20 * kCapCycleNs;
  std::uint64_t open = 0;
  for (view.now_ns = 0; view.now_ns < kEnd;) {
    policy::Decision decision;
    const std::uint64_t next = std::min(cap(view, ratio, &decision), kEnd);
    EXPECT_GT(next, view.now_ns);
    if (std::count(decision.closed.begin(), decision.closed.end(), id) == 0) open += next - view.now_ns;
    view.now_ns = next;
  }
  return static_cast<double>(open) / static_cast<double>(kEnd);
}

TEST(Caps, LowJobsRunForTheirPartOfTheTime) {
  for (const double ratio : {0.5, 0.25, 0.0}) {
    EXPECT_DOUBLE_EQ(open_part(jobs({0, 49}), ratio, 1), ratio);
    EXPECT_DOUBLE_EQ(open_part(jobs({0, 49}), ratio, 2), ratio);
  }
}

TEST(Caps, OthersAreNotTouched) {
  EXPECT_DOUBLE_EQ(open_part(jobs({0, kLowBelow}), 0.25, 2), 1);
  EXPECT_DOUBLE_EQ(open_part(jobs({0}), 1, 1), 1);
  policy::Snapshot unmanaged = jobs({0});
  unmanaged.jobs[0].can_be_closed = false;
  EXPECT_DOUBLE_EQ(open_part(unmanaged, 0, 1), 1);
}

TEST(Caps, AddsToWhatPoliciesDecide) {
  policy::Snapshot view = jobs({0, 0});
  view.now_ns = kCapCycleNs - 1;
  policy::Decision decision;
  decision.closed = {2};
  EXPECT_EQ(cap(view, 0.5, &decision), kCapCycleNs);
  EXPECT_THAT(decision.closed, testing::UnorderedElementsAre(1, 2));
}

}  // namespace
}  // namespace sluice::daemon
