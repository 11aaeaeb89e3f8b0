#include "metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>

namespace sluice::daemon {
namespace {

using control::Json;
using testing::HasSubstr;
using testing::Not;

Json status() {
  return {{"daemon", {{"version", "1.2.3"}, {"uptime_us", 2'500'000}}},
          {"devices",
           {{{"index", 0},
             {"uuid", "GPU-1"},
             {"name", "NVIDIA H200"},
             {"utilization_ratio", 0.5},
             {"temperature_c", nullptr},
             {"lost", false},
             {"clocks_locked_mhz", 1400},
             {"out_of_use", "memory errors"},
             {"throttle", {"power cap"}}}}},
          {"jobs",
           {{{"id", 7},
             {"name", "a \"b\"\n\\"},
             {"state", "held"},
             {"user", "me"},
             {"held_us", 1'500'000},
             {"launches", 9}}}},
          {"unmanaged", {1, 2}}};
}

TEST(Metrics, KeysBecomeSamplesInBaseUnits) {
  const std::string text = metrics_text(status());
  for (const char* line : {"sluice_build_info{version=\"1.2.3\"} 1", "sluice_daemon_uptime_seconds 2.5",
                           "sluice_jobs 1", "sluice_unmanaged_processes 2",
                           "sluice_gpu_utilization_ratio{gpu=\"0\",uuid=\"GPU-1\",name=\"NVIDIA H200\"} 0.5",
                           "sluice_gpu_clocks_locked_hertz{gpu=\"0\",uuid=\"GPU-1\",name=\"NVIDIA H200\"} 1400000000",
                           "sluice_gpu_out_of_use{gpu=\"0\",uuid=\"GPU-1\",name=\"NVIDIA H200\"} 1",
                           "sluice_gpu_throttled{gpu=\"0\",uuid=\"GPU-1\",name=\"NVIDIA H200\",reason=\"power cap\"} 1",
                           "# TYPE sluice_job_held_seconds_total counter",
                           "sluice_job_held_seconds_total{job=\"7\",name=\"a \\\"b\\\"\\n\\\\\"} 1.5"}) {
    EXPECT_THAT(text, HasSubstr(std::string(line) + "\n"));
  }
}

TEST(Metrics, WhatIsNotKnownHasNoSample) {
  EXPECT_THAT(metrics_text(status()), Not(HasSubstr("temperature")));
  EXPECT_THAT(metrics_text(Json::object()), Not(HasSubstr("sluice_gpu")));
  EXPECT_THAT(metrics_text({{"devices", 3}, {"jobs", {1, "x", nullptr}}}), HasSubstr("sluice_jobs 3"));
}

// Every metric that there can be, against the document's tables.
TEST(Metrics, AllAreDocumented) {
  Json all = status();
  for (const char* key : {"memory_used_bytes", "memory_total_bytes", "temperature_c", "power_w", "power_limit_w",
                          "simulated", "low_jobs_ratio", "batch_hint_ratio"})
    all["devices"][0][key] = 1;
  for (const char* key : {"priority", "share", "memory_bytes", "memory_allocated_bytes", "memory_limit_bytes", "gated",
                          "holds", "gpu_time_us", "stalls", "started_us"})
    all["jobs"][0][key] = 1;
  const auto names = [](const std::string& text, const char* pattern) {
    const std::regex expression(pattern);
    std::set<std::string> found;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), expression); at != std::sregex_iterator(); ++at)
      found.insert((*at)[1]);
    return found;
  };
  std::ifstream file(METRICS_DOCUMENT);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(names(metrics_text(all), "# TYPE (sluice_\\w+)"), names(document, "\\| `(sluice_\\w+)`"));
}

}  // namespace
}  // namespace sluice::daemon
