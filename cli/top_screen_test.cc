#include "top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json card(int index) {
  return {{"index", index},         {"uuid", "GPU-" + std::to_string(index)},
          {"name", "NVIDIA H200"},  {"utilization_ratio", 0.58},
          {"memory_used_bytes", 8}, {"memory_total_bytes", 10},
          {"temperature_c", 71},    {"power_w", 512.4},
          {"power_limit_w", 700.0}};
}

json job(unsigned id, int priority) {
  return {{"id", id},
          {"name", "train.py --very-long " + std::string(200, 'x')},
          {"priority", priority},
          {"state", "running"},
          {"devices", {"GPU-0"}},
          {"launches_per_s", 1234.5},
          {"gpu_share_ratio", 0.25}};
}

json status_of(int cards, int jobs) {
  json status = {{"devices", json::array()}, {"jobs", json::array()}, {"unmanaged", json::array()}};
  for (int i = 0; i < cards; ++i) status["devices"].push_back(card(i));
  for (int i = 0; i < jobs; ++i) status["jobs"].push_back(job(static_cast<unsigned>(i) + 1, 50));
  return status;
}

std::string whole(const std::vector<TopLine>& lines) {
  std::string text;
  for (const TopLine& line : lines) text += line.text + "\n";
  return text;
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

TEST(TopLines, FitEverySize) {
  for (const int cards : {0, 1, 8, 30}) {
    for (const int jobs : {0, 1, 100}) {
      const json status = status_of(cards, jobs);
      TopState state;
      state.selected = static_cast<std::uint64_t>(jobs);
      for (const int columns : {1, 20, 80, 200}) {
        for (const int rows : {1, 2, 5, 24, 60}) {
          const std::vector<TopLine> lines = top_lines(status, state, columns, rows);
          EXPECT_EQ(lines.size(), static_cast<std::size_t>(rows));
          for (const TopLine& line : lines) EXPECT_LE(characters(line.text), static_cast<std::size_t>(columns));
        }
      }
    }
  }
}

TEST(TopLines, EightyColumnsSayWhatMatters) {
  const std::string text = whole(top_lines(status_of(1, 1), {}, 80, 24));
  for (const char* part :
       {"H200", "#####...", "58 %", "71 C", "512/700 W", "normal", "running", "25 %", "1,234", "train.py", "q quit"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(TopLines, WhatIsNotKnownIsNotZero) {
  const json status = {{"devices", {{{"index", 0}, {"uuid", "GPU-0"}}}}, {"jobs", {{{"id", 1u}}}}};
  const std::string text = whole(top_lines(status, {}, 80, 24));
  EXPECT_THAT(text, testing::Not(HasSubstr("0 %")));
  EXPECT_THAT(text, testing::Not(HasSubstr("0 C")));
  EXPECT_THAT(text, HasSubstr("........"));
}

TEST(TopLines, ACardThatIsNotWellSaysWhy) {
  json status = status_of(1, 0);
  status["devices"][0]["out_of_use"] = "memory errors\033[2J";
  status["devices"][0]["low_jobs_ratio"] = 0.5;
  const std::vector<TopLine> lines = top_lines(status, {}, 80, 24);
  EXPECT_EQ(lines[2].look, TopLine::Look::kBad);
  EXPECT_THAT(lines[2].text, HasSubstr("out of use: memory errors?[2J; too hot: low jobs get 50 %"));
}

TEST(TopLines, HighestPriorityFirstAndTheSelectedOneInSight) {
  json status = status_of(1, 50);
  status["jobs"].push_back(job(99, 100));
  EXPECT_EQ(top_order(status).front(), 99u);
  TopState state;
  move_selection(status, 1, &state);
  EXPECT_EQ(state.selected, 99u);
  move_selection(status, 1000, &state);
  EXPECT_EQ(state.selected, 50u);
  const std::vector<TopLine> lines = top_lines(status, state, 80, 24);
  const auto marked = std::find_if(lines.begin(), lines.end(),
                                   [](const TopLine& line) { return line.look == TopLine::Look::kSelected; });
  ASSERT_NE(marked, lines.end());
  EXPECT_THAT(marked->text, HasSubstr("   50 normal"));
  EXPECT_EQ(characters(marked->text), 80u);
  move_selection(status_of(1, 0), 1, &state);
  EXPECT_FALSE(state.selected);
}

TEST(TopLines, AMessageTakesThePlaceOfTheKeys) {
  TopState state;
  state.message = "job 1 is high now";
  EXPECT_EQ(top_lines(status_of(1, 1), state, 80, 24).back().text, "job 1 is high now");
}

}  // namespace
}  // namespace sluice::cli
