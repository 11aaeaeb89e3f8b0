#include "profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_files.h"

namespace sluice::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json profile() {
  const auto step = [](int index, const char* name, const char* op, double us, double share) {
    return json{{"index", index},
                {"name", name},
                {"op", op},
                {"kernel", "k"},
                {"mean_us", us},
                {"share_ratio", share},
                {"outputs", {{{"dtype", "float"}, {"shape", {1, 8}}}}}};
  };
  return {{"model", "<m>.onnx"}, {"device", "cpu"},
          {"precision", "fp32"}, {"batch", 1},
          {"threads", 2},        {"runs", 10},
          {"latency_us", 4.0},   {"steps", {step(0, "a&b", "Conv", 3, 0.75), step(1, "c", "Relu", 1, 0.25)}}};
}

TEST(ProfileHtml, HasABarForEachStepAndNeedsNoOtherFile) {
  const std::string html = profile_html(profile());
  EXPECT_THAT(html, HasSubstr("&lt;m&gt;.onnx"));
  EXPECT_THAT(html, HasSubstr("a&amp;b"));
  EXPECT_THAT(html, HasSubstr("float 1x8"));
  EXPECT_THAT(html, HasSubstr("75.0 %"));
  EXPECT_THAT(html, HasSubstr("width:33.3%"));
  EXPECT_THAT(html, Not(HasSubstr("<m>")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
}

TEST(WriteProfile, PutsTheNumbersBeside) {
  const test::Folder folder;
  auto beside = write_profile(profile(), folder.path("p.html"));
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  EXPECT_EQ(*beside, folder.path("p.json"));
  EXPECT_EQ(json::parse(test::read_file(*beside)), profile());
  EXPECT_EQ(test::read_file(folder.path("p.html")), profile_html(profile()));
  EXPECT_THAT(write_profile(profile(), folder.path("no/p.html")).status().message(), HasSubstr("cannot write"));
}

}  // namespace
}  // namespace sluice::cli
