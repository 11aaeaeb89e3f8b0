#include "output.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(Output, WhatWouldSteerTheTerminalIsShownAsAQuestionMark) {
  EXPECT_EQ(printable("\033[2Jjob\tx\n\x7f"), "?[2Jjob?x??");
  EXPECT_EQ(printable("naïve job"), "naïve job");
}

TEST(Table, ColumnsAreAlignedAndLinesHaveNoTrailingBlanks) {
  Table table({{"JOB", Table::Align::kRight},
               {"NAME", Table::Align::kLeft},
               {"HELD", Table::Align::kRight},
               {"NOTE", Table::Align::kLeft}});
  table.add({"3", "train", "3.2 s", ""});
  table.add({"12", "überlang", "0 ns", "x"});
  EXPECT_EQ(table.text(),
            "JOB  NAME       HELD  NOTE\n"
            "  3  train     3.2 s\n"
            " 12  überlang   0 ns  x\n");
}

TEST(Table, NamesThatHoldControlCharactersCannotDriveTheTerminal) {
  Table table({{"NAME", Table::Align::kLeft}});
  table.add({"a\nb\x1b[31m\x7f"});
  EXPECT_EQ(table.text(), "NAME\na?b?[31m?\n");
}

}  // namespace
}  // namespace sluice::cli
