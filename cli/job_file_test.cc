#include "job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/board.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

std::string error_of(const std::string& text) {
  const auto got = parse_job_file(text, "jobs.toml");
  EXPECT_FALSE(got.ok()) << text;
  EXPECT_EQ(got.status().code(), Code::kInvalidArgument);
  return got.status().message();
}

TEST(JobFile, AWaitNeedsToKnowForWhat) {
  EXPECT_THAT(error_of("[[job]]\ncommand = \"true\"\nwait = true"), HasSubstr("wait needs memory"));
  EXPECT_THAT(error_of("[[job]]\ncommand = \"true\"\nmemory = \"1G\"\nwait = 1"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("[[job]]\ncommand = \"true\"\nmemory = \"0\""), HasSubstr("60%"));
}

TEST(JobFile, AllKeys) {
  const auto got = parse_job_file(R"(
[[job]]
name = "serve"
command = "python serve.py 'a b'"
priority = "high"
leave_below = 2.5
gpu = "GPU-1"
memory = "8GiB"
wait = true
mps = true
sm_percentage = 80
environment = {THREADS = 4, MODE = "x", EMPTY = ""}

[[job]]
command = ["python", "train.py"]
priority = -3
share = 3
gpu = [0, 1]
duration = "90s"
linger = "auto"
working_directory = "runs"
)",
                                  "/etc/jobs.toml");
  ASSERT_TRUE(got.ok()) << got.status().message();
  ASSERT_EQ(got->size(), 2u);
  const JobRequest& serve = (*got)[0];
  EXPECT_EQ(serve.name, "serve");
  EXPECT_THAT(serve.command, ElementsAre("python", "serve.py", "a b"));
  EXPECT_EQ(serve.priority, 100);
  EXPECT_EQ(serve.min_below_permille, 25u);
  EXPECT_EQ(serve.memory.bytes, std::uint64_t{8} << 30);
  EXPECT_TRUE(serve.wait);
  EXPECT_TRUE(serve.mps);
  EXPECT_EQ(serve.sm_percentage, 80u);
  EXPECT_THAT(serve.gpu.names, ElementsAre("GPU-1"));
  EXPECT_THAT(serve.environment,
              ::testing::UnorderedElementsAre(Pair("THREADS", "4"), Pair("MODE", "x"), Pair("EMPTY", "")));
  EXPECT_EQ(serve.duration_ns, 0u);
  EXPECT_FALSE(serve.linger_ns.has_value());
  const JobRequest& train = (*got)[1];
  EXPECT_FALSE(train.memory.any());
  EXPECT_FALSE(train.wait);
  EXPECT_EQ(train.name, "python train.py");
  EXPECT_EQ(train.priority, -3);
  EXPECT_EQ(train.share, 3u);
  EXPECT_THAT(train.gpu.names, ElementsAre("0", "1"));
  EXPECT_EQ(train.duration_ns, 90'000'000'000u);
  EXPECT_EQ(train.linger_ns, board::kDefaultLingerNs);
  EXPECT_EQ(train.working_directory, "/etc/runs") << "relative to the file";
}

TEST(JobFile, MessagesNameTheLine) {
  EXPECT_THAT(error_of("[[job]]\ncommand = \"x\"\n\nprioritty = 3\n"), StartsWith("jobs.toml:4: "));
  EXPECT_THAT(error_of("[[job]]\ncommand = \"x\"\nprioritty = 3\n"), HasSubstr("did you mean priority?"));
  EXPECT_THAT(error_of("[[job]]\ncommand = \"x\"\npriority = \"urgent\"\n"),
              StartsWith("jobs.toml:3: 'urgent' is no priority"));
  EXPECT_THAT(error_of("[[job]]\ncommand = \"x\"\n[[job]]\nname = \"y\"\n"),
              StartsWith("jobs.toml:3: this job has no command"));
  EXPECT_THAT(error_of("[[job]\n"), StartsWith("jobs.toml:1: "));
  EXPECT_THAT(error_of("\n\nx = 3\n"), StartsWith("jobs.toml:3: unknown key 'x'"));
  EXPECT_THAT(error_of("[[job]]\ncommand = \"x\"\nenvironment = {\nA = [1]}\n"), StartsWith("jobs.toml:"));
}

TEST(JobFile, WrongValuesAreRefused) {
  for (const char* line : {"command = 3",
                           "command = []",
                           "command = [\"\"]",
                           "command = [1]",
                           "command = \"\"",
                           "command = \"a | b\"",
                           "command = \"x\"\nshare = 0",
                           "command = \"x\"\nmps = 1",
                           "command = \"x\"\nmps = true\nsm_percentage = 0",
                           "command = \"x\"\nsm_percentage = 50",
                           "command = \"x\"\nshare = 1.5",
                           "command = \"x\"\nduration = 0",
                           "command = \"x\"\nduration = \"soon\"",
                           "command = \"x\"\nduration = inf",
                           "command = \"x\"\nduration = true",
                           "command = \"x\"\ngpu = -1",
                           "command = \"x\"\ngpu = []",
                           "command = \"x\"\ngpu = [0, 0]",
                           "command = \"x\"\nname = \"\"",
                           "command = \"x\"\nworking_directory = 3",
                           "command = \"x\"\nenvironment = 3",
                           "command = \"x\"\nenvironment = {\"A=B\" = \"c\"}",
                           "command = \"x\"\nenvironment = {A = true}",
                           "command = \"x\"\nenvironment = {A = \"\\u0000\"}",
                           "command = [\"a\\u0000b\"]",
                           "command = \"x\"\nleave_below = 95"}) {
    EXPECT_THAT(error_of(std::string("[[job]]\n") + line + "\n"), StartsWith("jobs.toml:")) << line;
  }
  for (const char* text : {"", "job = 3", "job = []", "job = [1]", "[job]\ncommand = \"x\""}) {
    EXPECT_THAT(error_of(text), HasSubstr("no [[job]] table")) << text;
  }
}

TEST(JobFile, WhatTheParserAssertsIsAnErrorLikeAnyOther) {
  EXPECT_THAT(error_of("# fine\n[[job]]\ncommand = \"x\"\n[[\002]]\n"), StartsWith("jobs.toml:4: "));
}

TEST(JobFile, LettersBeyondAscii) {
  EXPECT_THAT(error_of("[[job]]\ncommand = \"x\"\nx \u00e9 = 3\n"), StartsWith("jobs.toml:3: "));
  const auto got = parse_job_file("[[job]]\ncommand = \"x\"\nname = \"caf\u00e9\"  # \u00e9\n", "jobs.toml");
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ((*got)[0].name, "caf\u00e9");
}

TEST(JobFile, TooManyJobsAreRefused) {
  std::string text;
  for (std::size_t i = 0; i <= kMostJobs; ++i) text += "[[job]]\ncommand = \"x\"\n";
  EXPECT_THAT(error_of(text), HasSubstr("more than"));
}

TEST(JobFile, UnreadableFilesAreNamed) {
  const auto missing = read_job_file("/nowhere/jobs.toml");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere/jobs.toml"));
  EXPECT_FALSE(read_job_file("/").ok()) << "a directory";
}

}  // namespace
}  // namespace sluice::cli
