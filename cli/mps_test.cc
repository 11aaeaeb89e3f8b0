#include "mps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

MpsGpu gpu(health::ComputeMode mode, std::vector<pid_t> processes = {}) {
  return {"GPU 0 (Fake card)", mode, false, std::move(processes)};
}

TEST(MpsCanUse, AnOrdinaryGpuWhoeverUsesIt) {
  EXPECT_TRUE(mps_can_use(gpu(health::ComputeMode::kDefault, {1, 2}), {}).ok());
  EXPECT_TRUE(mps_can_use({"GPU 0 (Fake card)", {}, {}, {}}, {}).ok()) << "a card that does not tell its modes";
}

TEST(MpsCanUse, NotOneDividedByMig) {
  MpsGpu divided = gpu(health::ComputeMode::kDefault);
  divided.mig = true;
  const Status status = mps_can_use(divided, {});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_STREQ(status.message(), "MPS is not possible: GPU 0 (Fake card) is divided by MIG");
}

TEST(MpsCanUse, NotAProhibitedOne) {
  EXPECT_THAT(mps_can_use(gpu(health::ComputeMode::kProhibited), {}).message(), HasSubstr("PROHIBITED"));
}

TEST(MpsCanUse, AnExclusiveOneUnlessAnotherProcessHasIt) {
  const std::vector<mps::Server> servers = {{10, {11, 12}}};
  EXPECT_TRUE(mps_can_use(gpu(health::ComputeMode::kExclusiveProcess), {}).ok());
  EXPECT_TRUE(mps_can_use(gpu(health::ComputeMode::kExclusiveProcess, {10, 12}), servers).ok());
  const Status status = mps_can_use(gpu(health::ComputeMode::kExclusiveProcess, {10, getpid()}), servers);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("process " + std::to_string(getpid()) + " (cli_test, of "));
}

TEST(JobsMps, WithoutADaemonNothingIsChanged) {
  JobRequest request;
  request.mps = true;
  Environment environment = Environment::of_this_process();
  JobsMps().add_to(request, &environment);
  EXPECT_FALSE(environment.get(mps::kPriorityVariable));
}

}  // namespace
}  // namespace sluice::cli
