#include "sluice/base/status.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(Status, DefaultIsOk) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_STREQ(status.message(), "");
  EXPECT_EQ(exit_code(status), 0);
}

TEST(Status, ErrorKeepsCodeAndFormattedMessage) {
  Status status = Status::error(Code::kNotFound, "no GPU with index %d", 7);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_STREQ(status.message(), "no GPU with index 7");
  EXPECT_STREQ(code_name(status.code()), "NOT_FOUND");
}

TEST(Status, LongMessageIsCutNotOverrun) {
  std::string text(4 * Status::kMessageBytes, 'x');
  Status status = Status::error(Code::kInternal, "%s", text.c_str());
  EXPECT_EQ(std::string(status.message()).size(), Status::kMessageBytes - 1);
}

TEST(Status, ExitCodesFollowTheDocumentedTable) {
  EXPECT_EQ(exit_code(Status::error(Code::kInvalidArgument, "x")), kExitUsage);
  EXPECT_EQ(exit_code(Status::error(Code::kUnavailable, "x")), kExitNoDevice);
  EXPECT_EQ(exit_code(Status::error(Code::kAborted, "x")), kExitFailed);
}

TEST(Result, HoldsEitherValueOrError) {
  Result<int> good = 5;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 5);
  Result<int> bad = Status::error(Code::kAborted, "lost");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kAborted);
}

}  // namespace
}  // namespace sluice
