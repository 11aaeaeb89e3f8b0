// Lines for the user. Thread safe: one write a line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::cli {

// With control characters shown as ?: other people's names and commands must not reach the terminal as they are.
std::string printable(std::string text);

// "sluice: TEXT" on standard error.
void say(const std::string& text);

// Says what went wrong in `verb` ("" for none) and returns the exit code.
int fail(const std::string& verb, const Status& status);

// On standard output, indented, with a newline.
void print_json(const nlohmann::json& value);

// Columns padded to their widest cell, two spaces between, numbers to the right; no trailing blanks.
class Table {
 public:
  enum class Align { kLeft, kRight };
  explicit Table(std::vector<std::pair<std::string, Align>> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row);  // control characters are shown as ?
  std::string text() const;

 private:
  std::vector<std::pair<std::string, Align>> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sluice::cli
