#include <gtest/gtest.h>

#include "case.h"

namespace sluice::conformance {
namespace {

struct Totals {
  int passed = 0, wrong = 0;
  std::string names;  // of wrong ones
};

Totals run_all(const engine::Options& options) {
  Totals totals;
  for (const auto& folder : cases_in(node_cases())) {
    const Outcome outcome = run_case_apart(folder, options);
    totals.passed += outcome.verdict == Verdict::kPassed ? 1 : 0;
    if (outcome.verdict == Verdict::kWrong) {
      ++totals.wrong;
      totals.names += "\n" + folder.filename().string() + ": " + outcome.message;
    }
  }
  return totals;
}

class ConformanceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (node_cases().empty()) {
      GTEST_SKIP() << "libonnx-testdata is not installed";
    }
    options_.threads = 1;
  }
  engine::Options options_;
};

TEST_F(ConformanceTest, NoNodeCaseIsWrong) {
  const Totals totals = run_all(options_);
  EXPECT_EQ(totals.wrong, 0) << totals.names;
  EXPECT_GT(totals.passed, 0);
}

TEST_F(ConformanceTest, PassesChangeNoVerdict) {
  engine::Options unfused = options_;
  unfused.passes_off = {"all"};
  const Totals totals = run_all(unfused);
  EXPECT_EQ(totals.wrong, 0) << totals.names;
  EXPECT_EQ(totals.passed, run_all(options_).passed);
}

}  // namespace
}  // namespace sluice::conformance
