#include "figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels.h"

namespace sluice::cli::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(BandwidthCard, PeaksAreComputedFromTheCardsOwnFigures) {
  BandwidthCard card;
  EXPECT_FALSE(card.memory_peak());
  EXPECT_FALSE(card.link_peak());
  card.memory_clock_khz = 3201000;
  card.bus_bits = 6144;
  EXPECT_DOUBLE_EQ(*card.memory_peak(), 2 * 3201e6 * 6144 / 8);
  card.pcie_generation = 5;
  EXPECT_FALSE(card.link_peak());
  card.pcie_width = 16;
  EXPECT_NEAR(*card.link_peak(), 63e9, 0.1e9);
  card.pcie_generation = 99;  // one that this version does not know
  EXPECT_FALSE(card.link_peak());
}

TEST(BufferBytes, AreFarBeyondL2AndAtMostAQuarterOfWhatIsFree) {
  for (const std::uint64_t l2 : {0 * kMiB, 3 * kMiB, 50 * kMiB, 126 * kMiB}) {
    for (const std::uint64_t free : {200 * kMiB, 5000 * kMiB, 140000 * kMiB}) {
      const Result<std::uint64_t> bytes = buffer_bytes(l2, free, 0, false);
      if (!bytes.ok()) {
        EXPECT_EQ(bytes.status().code(), Code::kResourceExhausted);
        EXPECT_LT(free / 4, 8 * l2);
        continue;
      }
      EXPECT_GE(*bytes, 8 * l2);
      EXPECT_LE(*bytes, free / 4);
      EXPECT_EQ(*bytes % kMiB, 0u);
    }
  }
  EXPECT_GE(*buffer_bytes(50 * kMiB, 140000 * kMiB, 0, false), 1024 * kMiB);
}

TEST(BufferBytes, TakesTheUsersSizeUnlessL2OrTheFreeMemoryForbidIt) {
  EXPECT_EQ(*buffer_bytes(kMiB, 5000 * kMiB, 100 * kMiB, false), 100 * kMiB);
  EXPECT_EQ(*buffer_bytes(kMiB, 5000 * kMiB, 100 * kMiB - 1, false), 100 * kMiB);
  EXPECT_EQ(buffer_bytes(50 * kMiB, 5000 * kMiB, 100 * kMiB, false).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(buffer_bytes(kMiB, 300 * kMiB, 100 * kMiB, false).status().code(), Code::kResourceExhausted);
}

BandwidthReport report_of(std::vector<double> rates) {
  BandwidthReport report;
  report.cards.emplace_back();
  report.cards[0].name = "A\033card";
  BandwidthRow row;
  row.name = "read";
  row.gpu = 0;
  row.peak = 10e9;
  row.rates = std::move(rates);
  report.rows.push_back(row);
  return report;
}

TEST(BandwidthReport, MedianSpreadAndShare) {
  const BandwidthReport report = report_of({9e9, 4e9, 8e9, 5e9});
  const nlohmann::json row = to_json(report)["rows"][0];
  EXPECT_EQ(row["bytes_per_s"], 6.5e9);
  EXPECT_EQ(row["ratio"], 0.65);
  EXPECT_EQ(row["lowest_bytes_per_s"], 4e9);
  EXPECT_EQ(row["highest_bytes_per_s"], 9e9);
  EXPECT_EQ(row["samples"], 4);
  EXPECT_THAT(to_text(report), testing::HasSubstr("6.50 GB/s"));
  EXPECT_THAT(to_text(report), testing::Not(testing::HasSubstr("\033")));
}

TEST(BandwidthReport, WhatWasNotMeasuredIsNullAndSaidSo) {
  BandwidthReport report = report_of({});
  report.rows[0].missing = "cuMemAllocHost: CUDA_ERROR_OUT_OF_MEMORY";
  const nlohmann::json shown = to_json(report);
  EXPECT_TRUE(shown["peak_bytes_per_s"].is_null());
  EXPECT_TRUE(shown["rows"][0]["bytes_per_s"].is_null());
  EXPECT_TRUE(shown["rows"][0]["ratio"].is_null());
  EXPECT_THAT(to_text(report), testing::HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT(to_text(report), testing::HasSubstr("does not tell whether"));
}

TEST(BandwidthReport, SaysHowManySamplesWereThrownAway) {
  BandwidthReport report = report_of({1e9});
  report.rows[0].thrown_away = 3;
  report.throttled = {"power cap"};
  EXPECT_THAT(to_text(report), testing::HasSubstr("3 of 4 samples were thrown away"));
  EXPECT_THAT(to_text(report), testing::HasSubstr("(power cap)"));
}

// What the driver would say to the kernels, said by the assembler of a toolkit.
TEST(BandwidthPtx, Assembles) {
  const std::string ptxas = PTXAS;
  if (!std::filesystem::exists(ptxas)) GTEST_SKIP() << "no ptxas here";
  const std::string file = testing::TempDir() + "bandwidth-" + std::to_string(getpid()) + ".ptx";
  for (const KernelShape shape : {KernelShape{256, 4}, KernelShape{1024, 8}}) {
    std::ofstream(file) << bandwidth_ptx(shape);
    for (const char* arch : {"sm_75", "sm_90"}) {
      const std::string command = ptxas + " -arch=" + arch + " --output-file /dev/null " + file;
      EXPECT_EQ(std::system(command.c_str()), 0) << command;
    }
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace sluice::cli::doctor
