#include "environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sluice::cli {
namespace {

TEST(Environment, SetGetUnset) {
  Environment environment;
  environment.set("A", "1");
  environment.set("AB", "2");
  environment.set("A", "3");
  EXPECT_EQ(environment.get("A"), "3");
  EXPECT_EQ(environment.get("AB"), "2");
  EXPECT_EQ(environment.get("B"), std::nullopt);
  environment.unset("A");
  EXPECT_EQ(environment.get("A"), std::nullopt);
  ASSERT_EQ(environment.pointers().size(), 2u);
  EXPECT_STREQ(environment.pointers()[0], "AB=2");
  EXPECT_EQ(environment.pointers()[1], nullptr);
}

TEST(Environment, PrependMovesToTheFrontOnce) {
  Environment environment;
  environment.prepend("P", "/shim");
  EXPECT_EQ(environment.get("P"), "/shim") << "no trailing colon, which would mean the working directory";
  environment.set("P", "/a:/shim:/b");
  environment.prepend("P", "/shim");
  EXPECT_EQ(environment.get("P"), "/shim:/a:/b");
  environment.set("P", "/a::/b");
  environment.prepend("P", "/shim");
  EXPECT_EQ(environment.get("P"), "/shim:/a::/b") << "the user's own empty element stays";
}

TEST(Environment, TheCallersIsACopy) {
  setenv("SLUICE_TEST_VARIABLE", "x", 1);
  Environment environment = Environment::of_this_process();
  environment.set("SLUICE_TEST_VARIABLE", "y");
  EXPECT_STREQ(std::getenv("SLUICE_TEST_VARIABLE"), "x");
  unsetenv("SLUICE_TEST_VARIABLE");
}

}  // namespace
}  // namespace sluice::cli
