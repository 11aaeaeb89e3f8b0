#include "options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace sluice::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobFile : public ::testing::Test {
 protected:
  Result<std::vector<JobSpec>> load(const std::string& text) {
    std::ofstream(path_) << text;
    return load_jobs(path_);
  }
  void TearDown() override { unlink(path_.c_str()); }
  std::string path_ = ::testing::TempDir() + "jobs-" + std::to_string(getpid()) + ".toml";
};

TEST(SplitCommand, FollowsTheShell) {
  EXPECT_THAT(*split_command("a  b\tc"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(*split_command("sh -c 'echo \"x y\"' \"it's\" a\\ b ''"),
              ElementsAre("sh", "-c", "echo \"x y\"", "it's", "a b", ""));
  EXPECT_FALSE(split_command("echo 'open").ok());
  EXPECT_FALSE(split_command("   ").ok());
}

TEST(ParsePriority, TakesNamesAndNumbers) {
  EXPECT_EQ(*parse_priority("high"), 100);
  EXPECT_EQ(*parse_priority("normal"), 50);
  EXPECT_EQ(*parse_priority("low"), 0);
  EXPECT_EQ(*parse_priority("-7"), -7);
  for (const char* bad : {"", "higher", "1.5", "1001", "5 "}) EXPECT_FALSE(parse_priority(bad).ok()) << bad;
}

TEST_F(JobFile, ReadsEveryKey) {
  auto jobs = load(
      "[[job]]\ncommand = \"serve --port 1\"\npriority = \"high\"\nshare = 3\nname = \"s\"\n"
      "working_directory = \"/tmp\"\ngpu = \"auto\"\nduration = \"5s\"\nenvironment = { A = \"1\", B = 2 }\n"
      "leave_below = 5\nlinger = \"200us\"\n"
      "[[job]]\ncommand = [\"train\", \"a b\"]\npriority = 7\n");
  ASSERT_TRUE(jobs.ok()) << jobs.status().message();
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_THAT((*jobs)[0].command, ElementsAre("serve", "--port", "1"));
  EXPECT_EQ((*jobs)[0].priority, 100);
  EXPECT_EQ((*jobs)[0].share, 3u);
  EXPECT_EQ((*jobs)[0].working_directory, "/tmp");
  EXPECT_EQ((*jobs)[0].environment.at("A"), "1");
  EXPECT_EQ((*jobs)[0].environment.at("B"), "2");
  EXPECT_THAT((*jobs)[0].run_options, ElementsAre("--leave-below", "5", "--linger", "200us"));
  EXPECT_THAT((*jobs)[1].command, ElementsAre("train", "a b"));
  EXPECT_EQ((*jobs)[1].priority, 7);
}

TEST_F(JobFile, NamesTheLineOfAMistake) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c :
       {Case{"[[job]]\ncommand = 1\n", ":2: command"}, Case{"[[job]]\nname = \"x\"\n", "no command"},
        Case{"[[job]]\ncommand = \"a\"\nprio = 1\n", ":3: unknown key 'prio'"},
        Case{"[[job]]\ncommand = \"a\"\npriority = \"huge\"\n", ":3: priority"},
        Case{"[[job]]\ncommand = \"a\"\nshare = 0\n", ":3: share"}, Case{"[[job]]\ncommand = \"a\n", ":2: "},
        Case{"jobs = 1\n", ":1: unknown key 'jobs'"}, Case{"", "no [[job]]"}}) {
    auto jobs = load(c.text);
    ASSERT_FALSE(jobs.ok()) << c.text;
    EXPECT_EQ(jobs.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(jobs.status().message(), HasSubstr(c.message));
  }
}

TEST(NameAndSort, PutsTheHighestFirstAndMakesNamesDiffer) {
  std::vector<JobSpec> jobs(4);
  for (JobSpec& job : jobs) job.command = {"/usr/bin/train"};
  jobs[1].priority = 100;
  jobs[2].name = "a/b";
  name_and_sort(&jobs);
  EXPECT_EQ(jobs[0].priority, 100);
  EXPECT_EQ(jobs[0].name, "train");
  EXPECT_EQ(jobs[1].name, "train-2");
  EXPECT_EQ(jobs[2].name, "a_b");
  EXPECT_EQ(jobs[3].name, "train-3");
}

}  // namespace
}  // namespace sluice::bench
