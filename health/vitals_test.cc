#include <gtest/gtest.h>

#include <cstdlib>

#include "sluice/health.h"

namespace sluice::health {
namespace {

constexpr char kGeforce[] = "GPU-20600000-0000-0000-0000-000000000001";
constexpr char kDataCentre[] = "GPU-20000000-0000-0000-0000-000000000001";

// The fake with one of health/series.
std::shared_ptr<Nvml> play(const std::string& name) {
  setenv("SLUICE_FAKE_NVML", (SERIES "/" + name + ".toml").c_str(), 1);
  Result<std::shared_ptr<Nvml>> nvml = Nvml::open(FAKE_NVML);
  unsetenv("SLUICE_FAKE_NVML");
  EXPECT_TRUE(nvml.ok()) << nvml.status().message();
  return *nvml;
}

TEST(Vitals, ADataCentreCardTellsEverything) {
  const auto nvml = play("h200");
  EXPECT_EQ(nvml->driver().version, "580.95.05");
  EXPECT_EQ(nvml->driver().cuda_version, 13000);
  const auto v = nvml->vitals(kDataCentre);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_FALSE(v->lost);
  EXPECT_TRUE(v->denied.empty());
  EXPECT_EQ(v->pci, "0000:1b:00.0");
  EXPECT_EQ(v->pcie_generation, 5u);
  EXPECT_EQ(v->pcie_width_max, 16u);
  EXPECT_EQ(v->persistence, true);
  EXPECT_EQ(v->compute_mode, ComputeMode::kDefault);
  EXPECT_EQ(v->mig, false);
  EXPECT_EQ(v->sm_clock_mhz, 1980u);
  EXPECT_EQ(v->memory_clock_max_mhz, 3201u);
  EXPECT_EQ(v->throttle, 0u);
  EXPECT_EQ(v->thermal_violation_ns, 0u);
  EXPECT_EQ(v->temperature_c, 52u);
  EXPECT_EQ(v->slowdown_c, 87u);
  EXPECT_EQ(v->shutdown_c, 92u);
  EXPECT_EQ(v->operating_max_c, 85u);
  EXPECT_EQ(v->power_mw, 512000u);
  EXPECT_EQ(v->power_default_mw, 700000u);
  EXPECT_EQ(v->ecc, true);
  EXPECT_EQ(v->ecc_volatile.uncorrected, 0u);
  EXPECT_EQ(v->rows_failed, false);
}

TEST(Vitals, WhatAGeforceHasNotIsAbsentNotZero) {
  const auto v = play("geforce")->vitals(kGeforce);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(v->temperature_c, 67u);
  EXPECT_FALSE(v->ecc);
  EXPECT_FALSE(v->ecc_volatile.corrected);
  EXPECT_FALSE(v->ecc_aggregate.uncorrected);
  EXPECT_FALSE(v->rows_corrected);
  EXPECT_FALSE(v->pages_double_bit);
  EXPECT_FALSE(v->mig);
  EXPECT_FALSE(v->power_violation_ns);
}

TEST(Vitals, OneCallThatFailsTakesNothingElseWithIt) {
  const auto v = play("no_permission")->vitals(kGeforce);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(v->denied, (std::vector<std::string>{"nvmlDeviceGetPowerUsage", "nvmlDeviceGetPcieReplayCounter"}));
  EXPECT_FALSE(v->power_mw);
  EXPECT_EQ(v->temperature_c, 67u);
  EXPECT_EQ(v->pcie_width, 16u);
}

TEST(Vitals, ALostCardIsSaidToBeLost) {
  const auto nvml = play("lost_at_3");
  setenv("SLUICE_FAKE_NVML_STEP", "2", 1);
  EXPECT_FALSE(nvml->pulse(kDataCentre)->lost);
  EXPECT_EQ(nvml->pulse(kDataCentre)->temperature_c, 52u);
  setenv("SLUICE_FAKE_NVML_STEP", "3", 1);
  for (const auto& v : {nvml->pulse(kDataCentre), nvml->vitals(kDataCentre)}) {
    ASSERT_TRUE(v.ok());
    EXPECT_TRUE(v->lost);
    EXPECT_FALSE(v->temperature_c);
  }
  unsetenv("SLUICE_FAKE_NVML_STEP");
}

TEST(Vitals, ClearingNeedsPermissionAndErrorCounters) {
  EXPECT_EQ(play("h200")->clear_ecc(kDataCentre).code(), Code::kPermissionDenied);
  EXPECT_EQ(play("geforce")->clear_ecc(kGeforce).code(), Code::kUnimplemented);
  const auto nvml = play("ecc_errors");
  EXPECT_EQ(nvml->vitals(kDataCentre)->ecc_volatile.uncorrected, 2u);
  EXPECT_TRUE(nvml->clear_ecc(kDataCentre).ok());
  EXPECT_EQ(nvml->vitals(kDataCentre)->ecc_volatile.uncorrected, 0u);
  EXPECT_EQ(nvml->vitals(kDataCentre)->ecc_aggregate.uncorrected, 5u);
}

TEST(Throttle, ReasonsInWords) {
  EXPECT_TRUE(throttle::reasons(0).empty());
  EXPECT_TRUE(throttle::reasons(throttle::kIdle).empty());
  EXPECT_EQ(throttle::reasons(throttle::kPowerCap | throttle::kIdle), std::vector<std::string>{"power cap"});
  EXPECT_EQ(throttle::reasons(throttle::kHeat | throttle::kHardware | 0x10000),
            (std::vector<std::string>{"heat (driver)", "hardware slowdown", "reason 0x10000"}));
}

}  // namespace
}  // namespace sluice::health
