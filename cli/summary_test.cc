#include "summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobOutcome held_job() {
  JobOutcome job;
  job.id = 3;
  job.name = "python train.py";
  job.priority = 0;
  job.devices = {"GPU-1"};
  job.totals.clients_seen = 1;
  job.totals.launches = 81300;
  job.totals.gated = 81234;
  job.totals.held_ns = 3'200'000'000;
  job.totals.gpu_ns = 12'400'000'000;
  return job;
}

TEST(Summary, OneLineWithTheFigures) {
  EXPECT_EQ(summary_line(held_job()), "job 3 (low): 81,234 of 81,300 launches gated, held 3.20 s, GPU time 12.4 s");
}

TEST(Summary, SimulatedIsSaid) {
  JobOutcome job = held_job();
  job.simulated = true;
  EXPECT_THAT(summary_line(job), HasSubstr("job 3 (low, simulated): "));
  EXPECT_EQ(outcome_json(job)["simulated"], true);
}

TEST(Summary, WithoutAClientNoCudaWasUsed) {
  JobOutcome job = held_job();
  job.totals = {};
  EXPECT_EQ(summary_line(job), "job 3 (low): no CUDA was used");
}

TEST(Summary, LongKernelsMostFrequentFirst) {
  JobOutcome job = held_job();
  job.totals.long_launches = 1503;
  job.totals.preempted = 3671;
  std::strcpy(job.totals.long_kernels[0].name, "rare");
  job.totals.long_kernels[0].launches = 3;
  job.totals.long_kernels[0].longest_ns = 2'000'000;
  std::memset(job.totals.long_kernels[2].name, 'x', sizeof job.totals.long_kernels[2].name);  // no zero at the end
  job.totals.long_kernels[2].launches = 1500;
  job.totals.long_kernels[2].longest_ns = 1'400'000;
  const std::string line = summary_line(job);
  EXPECT_THAT(line, HasSubstr("1,503 launches of kernels longer than 100 us"));
  EXPECT_THAT(line, HasSubstr("x... x1,500 up to 1.40 ms, rare x3 up to 2 ms); taken off the GPU 3,671 times"));
  EXPECT_EQ(outcome_json(job)["preempted"], 3671);
  const auto kernels = outcome_json(job)["long_kernels"];
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0]["launches"], 1500);
  EXPECT_EQ(kernels[1], (nlohmann::json{{"name", "rare"}, {"launches", 3}, {"longest_us", 2000}}));
}

TEST(Summary, GraphsWithGatesAndThoseHeldAsAWhole) {
  JobOutcome job = held_job();
  EXPECT_THAT(summary_line(job), Not(HasSubstr("graphs")));
  EXPECT_TRUE(outcome_json(job)["graphs_whole_reason"].is_null());
  job.totals.graphs_gated = 3;
  job.totals.graphs_whole[static_cast<int>(board::Whole::kIntoGraph)] = 1;
  job.totals.graphs_whole[static_cast<int>(board::Whole::kByHand)] = 1200;
  const std::string line = summary_line(job);
  EXPECT_THAT(
      line, HasSubstr("; 3 graphs captured with gates; 1,201 launches of graphs held as a whole (built node by node)"));
  EXPECT_EQ(outcome_json(job)["graphs_gated"], 3);
  EXPECT_EQ(outcome_json(job)["graphs_whole"], 1201);
  EXPECT_EQ(outcome_json(job)["graphs_whole_reason"], "built node by node");
}

TEST(Summary, ReasonsNotToBeGatedAreSaid) {
  JobOutcome job = held_job();
  job.totals.bypass = static_cast<std::uint32_t>(board::Bypass::kNoMemOps);
  job.totals.stalls = 2;
  job.unseen = {"process 7 (x): LD_LIBRARY_PATH was reset on the way to it"};
  const std::string line = summary_line(job);
  EXPECT_THAT(line, HasSubstr(std::string("; not gated: ") + board::bypass_text(board::Bypass::kNoMemOps)));
  EXPECT_THAT(line, HasSubstr("; let others go 2 times"));
  EXPECT_THAT(line, HasSubstr("; without the shim: process 7 (x)"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
}

TEST(Summary, JsonOfAJobWithoutSluiceHasNullsNotZeros) {
  JobOutcome job;
  job.name = "x";
  job.bypass = "the shim is missing";
  job.exit_code = 137;
  job.signal = 9;
  const auto json = outcome_json(job);
  for (const char* key : {"id", "clients", "launches", "gated", "gated_ratio", "held_us", "gpu_time_us", "stalls"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  EXPECT_EQ(json["bypass"], "the shim is missing");
  EXPECT_EQ(json["exit_code"], 137);
  EXPECT_EQ(json["signal"], 9);
}

TEST(Summary, JsonKeysAreThoseDocumented) {
  const auto json = outcome_json(held_job());
  EXPECT_EQ(json["gated"], 81234);
  EXPECT_EQ(json["held_us"], 3'200'000);
  EXPECT_EQ(json["gpu_time_us"], 12'400'000);
  EXPECT_NEAR(json["gated_ratio"].get<double>(), 0.999, 0.001);
  EXPECT_TRUE(json["bypass"].is_null());
  EXPECT_TRUE(json["signal"].is_null());
}

TEST(Summary, Grouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

}  // namespace
}  // namespace sluice::cli
