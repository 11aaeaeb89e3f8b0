#include "status_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/base/clock.h"

namespace sluice::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json status() {
  return json::parse(R"({
    "daemon": {"pid": 1, "version": "0.1.0", "uptime_us": 1},
    "devices": [{"index": 0, "uuid": "GPU-a", "name": "NVIDIA GeForce RTX 2060", "simulated": true,
                 "memory_total_bytes": 6442450944, "memory_used_bytes": 1073741824, "utilization_ratio": null}],
    "jobs": [{"id": 3, "name": "train", "state": "held", "priority": 0, "share": 1, "devices": ["GPU-a"], "pids": [9],
              "run_pid": 8, "memory_bytes": null, "launches": 1000, "gated": 990, "gated_ratio": 0.99,
              "held_us": 500000, "gpu_time_us": 1000000, "holds": 2, "stalls": 0, "long_launches": 0, "bypass": null,
              "held_by": [4], "started_us": 90000000}],
    "unmanaged": [{"pid": 77, "name": "Xorg", "user": "root", "device": "GPU-a", "memory_bytes": 1048576,
                   "reason": "other user"}]})");
}

TEST(StatusView, JobsTable) {
  const std::string table = jobs_table(status());
  EXPECT_THAT(table, HasSubstr("held by 4"));
  EXPECT_THAT(table, HasSubstr("low"));
  EXPECT_THAT(table, HasSubstr("99 %"));
  EXPECT_THAT(table, HasSubstr("500 ms"));
  EXPECT_THAT(table, Not(HasSubstr("0 B"))) << "an unknown size is -, never 0";
}

TEST(StatusView, AllocatedMemoryStandsWithItsLimit) {
  json with = status();
  with["jobs"][0]["memory_allocated_bytes"] = std::uint64_t{1} << 30;
  EXPECT_THAT(jobs_table(with), HasSubstr(" 1 GiB  "));
  with["jobs"][0]["memory_limit_bytes"] = std::uint64_t{8} << 30;
  EXPECT_THAT(jobs_table(with), HasSubstr("1 GiB of 8 GiB"));
}

TEST(StatusView, NotesOfAJob) {
  json with = status();
  EXPECT_THAT(jobs_table(with), Not(HasSubstr("MPS")));
  with["jobs"][0]["mps"] = true;
  EXPECT_THAT(jobs_table(with), HasSubstr(" MPS\n"));
  with["jobs"][0]["bypass"] = "no place";
  EXPECT_THAT(jobs_table(with), HasSubstr(" MPS; not gated: no place\n"));
}

TEST(StatusView, NoJobs) {
  EXPECT_EQ(jobs_table(json::object()), "no jobs\n");
  EXPECT_EQ(devices_table(json::object()), "");
  EXPECT_EQ(unmanaged_table(json::object()), "");
}

TEST(StatusView, DevicesAndUnmanaged) {
  EXPECT_THAT(devices_table(status()), HasSubstr("simulated"));
  EXPECT_THAT(unmanaged_table(status()), HasSubstr("other user"));
}

TEST(StatusView, WhatHoldsACardDown) {
  json with = status();
  with["devices"][0]["throttle"] = json::array();
  EXPECT_THAT(devices_table(with), Not(HasSubstr("throttled")));
  with["devices"][0]["throttle"] = {"power cap", "heat (driver)"};
  EXPECT_THAT(devices_table(with), HasSubstr("  throttled: power cap, heat (driver); simulated\n"));
  with["devices"][0]["lost"] = true;
  EXPECT_THAT(devices_table(with), HasSubstr("  does not answer; "));
}

TEST(StatusView, OddRepliesDoNotThrow) {
  for (const char* text : {"[]", "3", "null", R"({"jobs": 3})", R"({"jobs": [3, null, {}]})",
                           R"({"jobs": [{"id": -1, "launches": "x", "held_by": 3, "devices": [3]}]})",
                           R"({"devices": [null], "unmanaged": [[]]})"}) {
    json odd = json::parse(text);
    EXPECT_NO_THROW({
      add_rates(odd, kNanosPerSecond, &odd);
      jobs_table(odd);
      devices_table(odd);
      unmanaged_table(odd);
    }) << text;
  }
}

TEST(StatusView, RatesComeFromTwoSamples) {
  json after = status();
  after["jobs"][0]["launches"] = 3000;
  after["jobs"][0]["gpu_time_us"] = 1'500'000;
  after["jobs"][0]["held_us"] = nullptr;
  add_rates(status(), 2 * kNanosPerSecond, &after);
  EXPECT_DOUBLE_EQ(after["jobs"][0]["launches_per_s"], 1000.0);
  EXPECT_DOUBLE_EQ(after["jobs"][0]["gpu_share_ratio"], 0.25);
  EXPECT_TRUE(after["jobs"][0]["held_ratio"].is_null());
  EXPECT_THAT(jobs_table(after), HasSubstr("LAUNCHES/S"));
}

TEST(StatusView, ANewJobHasNoRates) {
  json before = status();
  before["jobs"][0]["id"] = 2;
  json after = status();
  add_rates(before, kNanosPerSecond, &after);
  EXPECT_TRUE(after["jobs"][0]["launches_per_s"].is_null());
}

}  // namespace
}  // namespace sluice::cli
