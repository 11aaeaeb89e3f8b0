#include "suggest.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

const std::vector<std::string> kVerbs = {"run", "ps", "top", "stop", "version"};

TEST(Suggest, CloseWordsAreFound) {
  EXPECT_EQ(closest("rnu", kVerbs), "run");  // a transposition is one edit
  EXPECT_EQ(closest("stpo", kVerbs), "stop");
  EXPECT_EQ(closest("versoin", kVerbs), "version");
  EXPECT_EQ(closest("prioritty", {"priority", "command"}), "priority");
}

TEST(Suggest, FarWordsAreNot) {
  EXPECT_EQ(closest("banana", kVerbs), "");
  EXPECT_EQ(closest("", kVerbs), "");
  EXPECT_EQ(closest(std::string(100'000, 'x'), kVerbs), "");
  EXPECT_EQ(did_you_mean("banana", kVerbs), "");
  EXPECT_EQ(did_you_mean("tpo", kVerbs), "; did you mean top?");
}

}  // namespace
}  // namespace sluice::cli
