#include "trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

TEST(Trace, IsReadWithItsPeak) {
  const Result<Trace> trace =
      parse_trace(R"({"name": "t", "events": [[0, 100, 0], [1, 50, 2], [0, 0, 0], [0, 70, 1], [1, 0, 2]]})");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->peak_bytes, 150u);
  EXPECT_EQ(trace->blocks, 2u);
  EXPECT_EQ(trace->streams, 3u);
  EXPECT_EQ(trace->events.size(), 6u) << "what is left is freed";
}

TEST(Trace, WhatMakesNoSenseIsRefusedByItsNumber) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "not JSON with"},
      {R"({"name": 1, "events": []})", "not JSON with"},
      {R"({"name": "", "events": [[0, 1]]})", "event 0 is not"},
      {R"({"name": "", "events": [[0, -1, 0]]})", "event 0 is not"},
      {R"({"name": "", "events": [[0, 1, 0], [0, 1, 0]]})", "event 1: block 0 is allocated twice"},
      {R"({"name": "", "events": [[0, 0, 0]]})", "event 0: block 0 is freed but not allocated"},
      {R"({"name": "", "events": [[99999999999, 1, 0]]})", "event 0: a number over"},
      {R"({"name": "", "events": [[0, 9999999999999999999, 0]]})", "event 0: 9999999999999999999 bytes"},
  };
  for (const auto& [text, expected] : cases) {
    const Status status = parse_trace(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(expected)) << text;
  }
  EXPECT_EQ(read_trace("/nowhere/t.json").status().code(), Code::kNotFound);
}

TEST(Trace, GeneratedOnesAreWholeAndTheSameEachTime) {
  for (const std::string& kind : generated_kinds()) {
    const Trace trace = generate_trace(kind), again = generate_trace(kind);
    std::vector<bool> live(trace.blocks);
    for (const Event& event : trace.events) {
      ASSERT_EQ(live[event.block], event.bytes == 0) << kind;
      live[event.block] = event.bytes != 0;
    }
    EXPECT_EQ(std::count(live.begin(), live.end(), true), 0) << kind;
    EXPECT_GT(trace.peak_bytes, 1u << 20) << kind;
    EXPECT_EQ(trace.events.size(), again.events.size());
    EXPECT_EQ(trace.peak_bytes, again.peak_bytes);
  }
}

}  // namespace
}  // namespace sluice::bench
