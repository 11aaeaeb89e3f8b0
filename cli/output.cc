#include "output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace sluice::cli {
namespace {

// Code points, not bytes: a name may hold any UTF-8.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

void say(const std::string& text) {
  const std::string line = printable("sluice: " + text) + '\n';
  const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(ignored);
}

int fail(const std::string& verb, const Status& status) {
  say((verb.empty() ? "" : verb + ": ") + status.message());
  return exit_code(status);
}

void print_json(const nlohmann::json& value) {
  // Names come from files and command lines, which need not be UTF-8.
  const std::string text = value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(std::move(cell));
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& [title, align] : columns_) widths.push_back(width_of(title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  const auto add_line = [&](const auto& cell_at) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_at(i);
      const std::string padding(widths[i] - width_of(cell), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].second == Align::kRight ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](std::size_t i) -> const std::string& { return columns_[i].first; });
  for (const auto& row : rows_) add_line([&](std::size_t i) -> const std::string& { return row[i]; });
  return out;
}

}  // namespace sluice::cli
