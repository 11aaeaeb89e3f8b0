#include "sluice/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <climits>
#include <string>

namespace sluice::driver {
namespace {

const std::string kFakes = FAKES;
std::string fake(const char* kind) { return kFakes + "/fake_" + kind; }
std::string library(const char* kind) { return fake(kind) + "/libcuda.so.1"; }

class Driver : public ::testing::Test {
 protected:
  Driver() {
    unsetenv("SLUICE_DRIVER");
    unsetenv("LD_LIBRARY_PATH");
  }
  char path_[PATH_MAX] = {};
};

TEST_F(Driver, TheVariableWins) {
  setenv("LD_LIBRARY_PATH", fake("driver").c_str(), 1);
  setenv("SLUICE_DRIVER", library("emulator").c_str(), 1);
  ASSERT_TRUE(find_library(path_, sizeof path_).ok());
  EXPECT_EQ(path_, library("emulator"));
  Result<void*> opened = open_library();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(is_emulator(*opened));
  EXPECT_FALSE(is_shim(*opened));
}

TEST_F(Driver, AVariableThatLeadsNowhereIsRefusedByName) {
  for (const char* value : {"libcuda.so.1", "/nowhere/libcuda.so.1"}) {
    setenv("SLUICE_DRIVER", value, 1);
    const Status status = find_library(path_, sizeof path_);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(std::string(status.message()).find(value), std::string::npos);
  }
}

TEST_F(Driver, SluicesOwnLibrariesOnTheLibraryPathAreSkipped) {
  const std::string search =
      fake("shim") + "::/nowhere:relative:" + fake("emulator") + ":" + fake("other") + ":" + fake("driver");
  setenv("LD_LIBRARY_PATH", search.c_str(), 1);
  ASSERT_TRUE(find_library(path_, sizeof path_).ok());
  EXPECT_EQ(path_, library("driver"));
}

TEST_F(Driver, TheShimWithTheSameSonameIsNoObstacle) {
  ASSERT_NE(dlopen(library("shim").c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr);
  setenv("LD_LIBRARY_PATH", (fake("shim") + ":" + fake("driver")).c_str(), 1);
  Result<void*> opened = open_library();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_FALSE(is_shim(*opened));
  auto init = symbol<int (*)(unsigned)>(*opened, "cuInit");
  ASSERT_NE(init, nullptr);
  EXPECT_EQ(init(7), 7);
  EXPECT_EQ(symbol_address(*opened, "cuNothingOfThatName"), nullptr);
  EXPECT_EQ(dlerror(), nullptr) << "the program's next dlerror() must not speak of our look-up";
}

TEST_F(Driver, AProgramsOwnCallsGoThroughTheShimWhereItIsInFront) {
  setenv("SLUICE_DRIVER", library("driver").c_str(), 1);
  Result<void*> without = open_process_library();
  ASSERT_TRUE(without.ok()) << without.status().message();
  EXPECT_FALSE(is_shim(*without));
  dlclose(*without);
  ASSERT_NE(dlopen(library("shim").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr);
  Result<void*> behind = open_process_library();
  ASSERT_TRUE(behind.ok()) << behind.status().message();
  EXPECT_TRUE(is_shim(*behind));
}

TEST_F(Driver, OpeningTheWrongLibrarySaysWhy) {
  EXPECT_NE(std::string(open_library(library("shim").c_str()).status().message()).find("shim"), std::string::npos);
  EXPECT_NE(std::string(open_library(library("other").c_str()).status().message()).find("cuInit"), std::string::npos);
  EXPECT_EQ(open_library("/nowhere/libcuda.so.1").status().code(), Code::kUnavailable);
}

TEST_F(Driver, ABufferTooSmallIsNoMatchAndNoOverrun) {
  setenv("LD_LIBRARY_PATH", fake("driver").c_str(), 1);
  char small[8] = "xxxxxxx";
  EXPECT_FALSE(find_library(small, 4).ok());
  EXPECT_EQ(small[4], 'x');
}

}  // namespace
}  // namespace sluice::driver
