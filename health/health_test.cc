#include "sluice/health.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sluice::health {
namespace {

constexpr char kOrdinary[] = "GPU-00000000-0000-0000-0000-000000000001";
constexpr char kPoor[] = "GPU-00000000-0000-0000-0000-000000000002";

std::shared_ptr<Nvml> fake() {
  Result<std::shared_ptr<Nvml>> nvml = Nvml::open(FAKE_NVML);
  EXPECT_TRUE(nvml.ok()) << nvml.status().message();
  return *nvml;
}

TEST(Nvml, DevicesAndWhatTheyAnswer) {
  const auto nvml = fake();
  EXPECT_FALSE(nvml->simulated());
  const auto devices = nvml->devices();
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 3u);
  const Device& ordinary = (*devices)[0];
  EXPECT_EQ(ordinary.uuid, kOrdinary);
  EXPECT_EQ(ordinary.name, "Fake card");
  EXPECT_EQ(ordinary.memory_total_bytes, 6ull << 30);
  EXPECT_EQ(ordinary.memory_used_bytes, 1ull << 30);
  EXPECT_DOUBLE_EQ(*ordinary.utilization_ratio, 0.58);
}

TEST(Nvml, WhatIsNotSupportedIsAbsentNotZero) {
  const auto devices = fake()->devices();
  const Device& poor = (*devices)[1];
  EXPECT_EQ(poor.uuid, kPoor);
  EXPECT_FALSE(poor.memory_total_bytes.has_value());
  EXPECT_FALSE(poor.memory_used_bytes.has_value());
  EXPECT_FALSE(poor.utilization_ratio.has_value());
}

TEST(Nvml, ALostCardKeepsItsPlace) {
  const auto devices = fake()->devices();
  EXPECT_EQ((*devices)[2].index, 2);
  EXPECT_EQ((*devices)[2].uuid, "");
  EXPECT_EQ((*devices)[2].error, "GPU is lost");
  EXPECT_EQ((*devices)[0].error, "");
}

TEST(Nvml, ProcessesThroughTheOlderFunctionAndAListLongerThanGuessed) {
  const auto processes = fake()->compute_processes(kOrdinary);
  ASSERT_TRUE(processes.ok()) << processes.status().message();
  ASSERT_EQ(processes->size(), 100u);
  EXPECT_EQ((*processes)[0].pid, 1000);
  EXPECT_FALSE((*processes)[0].memory_bytes.has_value());
  EXPECT_EQ((*processes)[99].memory_bytes, 99u);
}

TEST(Nvml, ErrorsSayWhich) {
  const auto nvml = fake();
  EXPECT_EQ(nvml->compute_processes(kPoor).status().code(), Code::kUnimplemented);
  EXPECT_EQ(nvml->compute_processes("GPU-none").status().code(), Code::kNotFound);
  EXPECT_EQ(nvml->topology(kOrdinary, "GPU-none").status().code(), Code::kNotFound);
}

TEST(Nvml, Topology) {
  const auto nvml = fake();
  EXPECT_EQ(*nvml->topology(kOrdinary, kPoor), Topology::kHostBridge);
  EXPECT_EQ(*nvml->topology(kOrdinary, kOrdinary), Topology::kSameBoard);
}

TEST(Nvml, WithoutALibraryOrADriverItIsUnavailable) {
  EXPECT_EQ(Nvml::open("/nonexistent/libnvidia-ml.so.1").status().code(), Code::kUnavailable);
  EXPECT_EQ(Nvml::open("libc.so.6").status().code(), Code::kUnavailable);
  setenv("SLUICE_FAKE_NVML", SERIES "/no_driver.toml", 1);
  const auto nvml = Nvml::open(FAKE_NVML);
  unsetenv("SLUICE_FAKE_NVML");
  EXPECT_EQ(nvml.status().code(), Code::kUnavailable);
  EXPECT_NE(std::string(nvml.status().message()).find("the fake's error"), std::string::npos);
}

TEST(Nvml, TheEnvironmentNamesTheLibrary) {
  setenv("SLUICE_NVML", FAKE_NVML, 1);
  EXPECT_TRUE(Nvml::open().ok());
  setenv("SLUICE_NVML", "/nonexistent", 1);
  EXPECT_FALSE(Nvml::open().ok());
  unsetenv("SLUICE_NVML");
}

}  // namespace
}  // namespace sluice::health
