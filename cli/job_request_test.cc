#include "job_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/board.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JobRequest, Priorities) {
  EXPECT_EQ(*parse_priority("high"), 100);
  EXPECT_EQ(*parse_priority("normal"), 50);
  EXPECT_EQ(*parse_priority("low"), 0);
  EXPECT_EQ(*parse_priority("-7"), -7);
  EXPECT_EQ(*parse_priority("1000"), kHighestPriority);
  for (const char* text : {"", "hgih", "1001", "-1001", "5.5", "99999999999999999999", "0x10", "3 ", "+-3"}) {
    const auto got = parse_priority(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(got.status().message(), HasSubstr("use high, normal, low or an integer"));
  }
}

TEST(JobRequest, PriorityNamesAreTheInverse) {
  for (int priority : {0, 50, 100, -3, 7}) EXPECT_EQ(*parse_priority(priority_name(priority)), priority);
}

TEST(JobRequest, Shares) {
  EXPECT_EQ(*parse_share("1"), 1u);
  EXPECT_EQ(*parse_share("1000"), kLargestShare);
  for (const char* text : {"", "0", "-1", "1001", "2.5", "a"}) EXPECT_FALSE(parse_share(text).ok()) << text;
}

TEST(JobRequest, LeaveBelow) {
  EXPECT_EQ(*parse_leave_below("5"), 50u);
  EXPECT_EQ(*parse_leave_below("2.5%"), 25u);
  EXPECT_EQ(*parse_leave_below("0"), 0u);
  for (const char* text : {"", "%", "-1", "91", "nan", "inf", "5%%"})
    EXPECT_FALSE(parse_leave_below(text).ok()) << text;
}

TEST(JobRequest, SmPercentage) {
  EXPECT_EQ(*parse_sm_percentage("60"), 60u);
  EXPECT_EQ(*parse_sm_percentage("100%"), 100u);
  for (const char* text : {"", "%", "0", "-1", "101", "2.5", "5%%"})
    EXPECT_FALSE(parse_sm_percentage(text).ok()) << text;
}

TEST(JobRequest, Linger) {
  EXPECT_EQ(*parse_linger("auto"), board::kDefaultLingerNs);
  EXPECT_EQ(*parse_linger("200us"), 200'000u);
  for (const char* text : {"", "2s", "-1", "soon"}) EXPECT_FALSE(parse_linger(text).ok()) << text;
}

TEST(JobRequest, Memory) {
  EXPECT_EQ(parse_memory("8GiB")->of(1), std::uint64_t{8} << 30);
  EXPECT_EQ(parse_memory("60%")->of(6442450944), 3865470566u);
  EXPECT_EQ(parse_memory("100%")->of(6442450944), 6442450944u);
  EXPECT_EQ(parse_memory("2.5%")->permille, 25u);
  EXPECT_EQ(parse_memory("60%")->of(0), 0u) << "a card whose size is not known";
  EXPECT_FALSE(MemoryRequest().any());
  for (const char* text : {"", "0", "0%", "%", "101%", "-1", "8 G", "much", "60%%", "nan%"})
    EXPECT_FALSE(parse_memory(text).ok()) << text;
}

TEST(JobRequest, Gpus) {
  EXPECT_EQ(parse_gpus("auto")->kind, GpuRequest::Kind::kAuto);
  EXPECT_EQ(parse_gpus("auto:2")->count, 2);
  EXPECT_THAT(parse_gpus("0,GPU-12ab,03")->names, ElementsAre("0", "GPU-12ab", "3"));
  for (const char* text : {"", ",", "0,", "-1", "auto:0", "auto:", "auto:x", "auto,1", "first", "0,0", "0,00", "1.5"}) {
    EXPECT_FALSE(parse_gpus(text).ok()) << text;
  }
}

TEST(JobRequest, WordsSplitAsAShellDoes) {
  EXPECT_THAT(*split_words("  python  train.py\t--x 'a b'\"c d\"e "),
              ElementsAre("python", "train.py", "--x", "a bc de"));
  EXPECT_THAT(*split_words(R"(a\ b "q\"q\n" '\' '')"), ElementsAre("a b", R"(q"q\n)", "\\", ""));
  EXPECT_THAT(*split_words("'a;|$b'"), ElementsAre("a;|$b"));
  EXPECT_THAT(*split_words(""), ElementsAre());
}

TEST(JobRequest, WordsThatNeedAShellAreRefused) {
  for (const char* text :
       {"a | b", "a && b", "a; b", "a > f", "echo $HOME", "echo \"$HOME\"", "echo `id`", "(a)", "a '", "a \"", "a\\"}) {
    EXPECT_FALSE(split_words(text).ok()) << text;
  }
}

TEST(JobRequest, NamesComeFromTheCommand) {
  EXPECT_EQ(default_name({"/usr/bin/python3", "src/train.py", "--x"}), "python3 train.py");
  EXPECT_EQ(default_name({"python", "-m", "torch.distributed.run"}), "python -m torch.distributed.run");
  EXPECT_EQ(default_name({"./serve"}), "serve");
  EXPECT_EQ(default_name({"ls", "-l"}), "ls");
  EXPECT_EQ(default_name({"bin/"}), "bin/") << "never empty";
  EXPECT_LE(default_name({std::string(1000, 'x')}).size(), 64u);
}

}  // namespace
}  // namespace sluice::cli
