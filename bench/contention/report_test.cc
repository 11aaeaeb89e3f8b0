#include "report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "best.h"
#include "html.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobRun job_run(double throughput, std::vector<double> latencies, std::optional<double> service = {}) {
  JobRun run;
  run.throughput_per_s = throughput;
  run.latencies_us = std::move(latencies);
  run.service_p50_us = service;
  return run;
}

// A service of 100 requests/s, 1 ms each, and a job that makes 1000 iterations/s alone.
class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    options_.jobs.resize(2);
    options_.jobs[0].name = "serve<r>";
    options_.jobs[0].priority = 100;
    options_.jobs[0].command = {"serve"};
    options_.jobs[1].name = "train";
    options_.jobs[1].priority = 0;
    options_.jobs[1].command = {"train", "--fast"};
    options_.repeats = 2;
    machine_.device = "Test GPU";
    machine_.simulated = true;
    machine_.real_per_shown = 8;
    bench::Run alone, sliced, sluice;
    alone.jobs = {job_run(100, {1000, 1100, 2000}, 1000), job_run(1000, {})};
    sliced.jobs = {job_run(100, {1000, 3000, 6000}), job_run(900, {})};
    sluice.jobs = {job_run(100, {1000, 1100, 2200}), job_run(855, {})};
    sluice.timeline.length_us = 1e4;
    sluice.timeline.jobs = {{{100, 1100, JobState::kRunning}, {5000, 6000, JobState::kRunning}},
                            {{0, 100, JobState::kRunning}, {100, 1100, JobState::kHeld}}};
    bench::Run sluice_slower = sluice;
    sluice_slower.jobs[1].throughput_per_s = 765;
    report_ = make_report(options_, machine_, 0.5, {Setup::kAlone, Setup::kTimeSlicing, Setup::kSluice},
                          {{alone, alone}, {sliced, sliced}, {sluice, sluice_slower}});
  }
  Options options_;
  Machine machine_;
  Report report_;
};

TEST_F(ReportTest, ComparesWithAlone) {
  const JobResult& high = report_.find(Setup::kSluice)->jobs[0];
  EXPECT_EQ(high.p50_us, 1100);
  EXPECT_EQ(high.p99_us, 2200);
  EXPECT_DOUBLE_EQ(*high.p99_ratio, 1.1);
  EXPECT_GE(high.p99_ratio_bounds->high, 1.1);
  EXPECT_DOUBLE_EQ(*report_.find(Setup::kTimeSlicing)->jobs[0].p99_ratio, 3);
  EXPECT_EQ(*report_.find(Setup::kAlone)->jobs[0].p99_ratio, 1);
}

TEST_F(ReportTest, KeptIsOfWhatTheJobsAboveLeave) {
  const JobResult& low = report_.find(Setup::kSluice)->jobs[1];
  // 100 requests of 1 ms leave 0.9 of the time: 900 of 1000 iterations.
  EXPECT_DOUBLE_EQ(*low.kept_ratio, 810.0 / 900);
  EXPECT_DOUBLE_EQ(low.kept_spread->low, 765.0 / 900);
  EXPECT_DOUBLE_EQ(low.kept_spread->high, 855.0 / 900);
  EXPECT_DOUBLE_EQ(*report_.find(Setup::kAlone)->jobs[1].kept_ratio, 1);
  EXPECT_DOUBLE_EQ(*report_.find(Setup::kSluice)->jobs[0].kept_ratio, 1);
}

TEST_F(ReportTest, JsonHasTheKeysThatOthersRelyOn) {
  auto json = to_json(report_);
  EXPECT_EQ(json["device"], "Test GPU");
  EXPECT_EQ(json["simulated"], true);
  ASSERT_EQ(json["setups"].size(), 3u);
  EXPECT_EQ(json["setups"][0]["name"], "alone");
  EXPECT_EQ(json["setups"][1]["name"], "time_slicing");
  EXPECT_EQ(json["setups"][2]["name"], "sluice");
  for (const char* key :
       {"name", "priority", "p50_us", "p99_us", "p99_ratio", "throughput_per_s", "kept_ratio", "samples"}) {
    EXPECT_TRUE(json["setups"][2]["jobs"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["setups"][2]["jobs"][0]["samples"], 6);
  EXPECT_TRUE(json["setups"][2]["jobs"][1]["p99_us"].is_null());
  EXPECT_DOUBLE_EQ(json["setups"][2]["total_ratio"], 1.81);
  EXPECT_DOUBLE_EQ(json["setups"][2]["total_to_time_slicing_ratio"], 1.81 / 1.9);
  EXPECT_EQ(json["best"]["setup"], "sluice");
  EXPECT_EQ(json["best"]["by"], "p99");
  EXPECT_EQ(json["best"]["runner_up"], "time_slicing");
}

TEST_F(ReportTest, EverythingShownSaysThatItIsSimulated) {
  EXPECT_THAT(table(report_), HasSubstr("simulated"));
  EXPECT_THAT(verdict(report_), HasSubstr("simulated"));
  EXPECT_THAT(best_sentence(report_), HasSubstr("Simulated"));
  EXPECT_THAT(to_html(report_), HasSubstr("simulated"));
  report_.simulated = false;
  EXPECT_THAT(table(report_) + verdict(report_) + to_html(report_), Not(HasSubstr("simulated")));
  EXPECT_THAT(best_sentence(report_), Not(HasSubstr("Simulated")));
}

TEST_F(ReportTest, VerdictNamesBothRatiosAndWhatWasKept) {
  EXPECT_THAT(verdict(report_), HasSubstr("1.10 times"));
  EXPECT_THAT(verdict(report_), HasSubstr("3.00 times by time slicing"));
  EXPECT_THAT(verdict(report_), HasSubstr("train keeps 90 %"));
}

TEST_F(ReportTest, PageIsSelfContainedAndEscaped) {
  std::string html = to_html(report_);
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("serve<r>")));
  EXPECT_THAT(html, HasSubstr("serve&lt;r&gt;"));
  EXPECT_THAT(html, HasSubstr("<polyline"));
  EXPECT_THAT(html, HasSubstr("held for"));
}

}  // namespace
}  // namespace sluice::bench
