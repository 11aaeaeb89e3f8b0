#include "placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

Candidate gpu(int index, std::uint64_t used_gib, double busy = 0, std::vector<int> jobs = {}) {
  Candidate candidate;
  candidate.index = index;
  candidate.uuid = "GPU-" + std::to_string(index);
  candidate.memory_total_bytes = 80 * kGiB;
  candidate.memory_used_bytes = used_gib * kGiB;
  candidate.utilization_ratio = busy;
  candidate.job_priorities = std::move(jobs);
  return candidate;
}

Placement place_ok(const std::vector<Candidate>& gpus, int count, int priority = 50, const Distance& distance = {}) {
  auto placed = place(gpus, count, priority, distance);
  EXPECT_TRUE(placed.ok()) << placed.status().message();
  return *placed;
}

TEST(Placement, TheOnlyGpu) {
  const Placement placed = place_ok({gpu(0, 70, 1.0)}, 1);
  EXPECT_THAT(placed.chosen, ElementsAre(0));
  EXPECT_THAT(placed.why, HasSubstr("no other"));
}

TEST(Placement, FreeMemoryComesFirst) {
  const Placement placed = place_ok({gpu(0, 60, 0.0), gpu(1, 10, 0.9, {100, 100})}, 1);
  EXPECT_THAT(placed.chosen, ElementsAre(1));
  EXPECT_THAT(placed.why, HasSubstr("most free memory"));
}

TEST(Placement, ALittleMemoryDoesNotOutweighLoad) {
  const Placement placed = place_ok({gpu(0, 1, 0.9), gpu(1, 3, 0.0)}, 1);
  EXPECT_THAT(placed.chosen, ElementsAre(1));
  EXPECT_THAT(placed.why, HasSubstr("least busy"));
}

TEST(Placement, OnlyJobsOfTheSameOrHigherPriorityCompete) {
  // For a high job two low ones matter less than one of its equals; for a low job the other way round.
  const std::vector<Candidate> gpus = {gpu(0, 0, 0, {100}), gpu(1, 0, 0, {0, 0})};
  EXPECT_THAT(place_ok(gpus, 1, 100).chosen, ElementsAre(1));
  EXPECT_THAT(place_ok(gpus, 1, 0).chosen, ElementsAre(0));
}

TEST(Placement, SeveralAreTakenCloseTogether) {
  // 0-1 and 2-3 share a switch.
  const Distance distance = [](std::size_t a, std::size_t b) { return a / 2 == b / 2 ? 10 : 50; };
  const Placement placed = place_ok({gpu(0, 0, 0.5), gpu(1, 0, 0.0), gpu(2, 0, 0.0), gpu(3, 0, 0.0)}, 2, 50, distance);
  EXPECT_THAT(placed.chosen, ElementsAre(2, 3));
  EXPECT_THAT(placed.why, HasSubstr("closest together"));
}

TEST(Placement, EqualsGoToTheLowestIndex) {
  const Placement placed = place_ok({gpu(0, 0), gpu(1, 0), gpu(2, 0)}, 2);
  EXPECT_THAT(placed.chosen, ElementsAre(0, 1));
  EXPECT_THAT(placed.why, HasSubstr("lowest index"));
}

TEST(Placement, UnknownFiguresAreNoReason) {
  Candidate silent;
  silent.index = 0;
  EXPECT_THAT(place_ok({silent, silent}, 1).chosen, ElementsAre(0));
}

TEST(Placement, TooFewGpus) {
  for (int count : {0, 2}) {
    const auto placed = place({gpu(0, 0)}, count, 50, {});
    ASSERT_FALSE(placed.ok());
    EXPECT_EQ(placed.status().code(), Code::kUnavailable);
  }
}

TEST(Placement, AnyNumberOfGpusEnds) {
  for (int total : {1, 2, 8, 12, 13, 40}) {
    std::vector<Candidate> gpus;
    for (int i = 0; i < total; ++i) gpus.push_back(gpu(i, static_cast<std::uint64_t>(i * 37 % 70), i % 3 / 3.0));
    for (int count = 1; count <= total; count += 3) {
      const Placement placed = place_ok(gpus, count);
      ASSERT_EQ(placed.chosen.size(), static_cast<std::size_t>(count));
      ASSERT_TRUE(std::is_sorted(placed.chosen.begin(), placed.chosen.end()));
      ASSERT_EQ(std::adjacent_find(placed.chosen.begin(), placed.chosen.end()), placed.chosen.end());
    }
  }
}

}  // namespace
}  // namespace sluice::cli
