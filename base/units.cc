#include "sluice/base/units.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace sluice {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr Unit kDurations[] = {{"", 1e9}, {"s", 1e9},  {"ms", 1e6},   {"us", 1e3},
                               {"ns", 1}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
constexpr double kKi = 1024;
constexpr Unit kSizes[] = {{"", 1},
                           {"b", 1},
                           {"k", kKi},
                           {"kib", kKi},
                           {"kb", 1e3},
                           {"m", kKi* kKi},
                           {"mib", kKi* kKi},
                           {"mb", 1e6},
                           {"g", kKi* kKi* kKi},
                           {"gib", kKi* kKi* kKi},
                           {"gb", 1e9},
                           {"t", kKi* kKi* kKi* kKi},
                           {"tib", kKi* kKi* kKi* kKi},
                           {"tb", 1e12}};

// The number that `text` begins with, and the unit behind it as its scale; false if either is none.
bool parse_quantity(const std::string& text, std::span<const Unit> units, double* value) {
  char* end = nullptr;
  const bool starts_as_number = !text.empty() && ((text[0] >= '0' && text[0] <= '9') || text[0] == '.');
  const double number = starts_as_number ? std::strtod(text.c_str(), &end) : -1;
  if (!starts_as_number || end == text.c_str() || !std::isfinite(number)) return false;
  for (const Unit& unit : units) {
    if (unit.name != end) continue;
    *value = number * unit.scale;
    return *value < 9e18;
  }
  return false;
}

std::string print(double value, std::span<const Unit> steps) {
  const Unit* best = &steps.front();
  for (const Unit& step : steps) {
    if (value >= step.scale) best = &step;
  }
  value /= best->scale;
  const int digits = value >= 100 || value == std::floor(value) ? 0 : value >= 10 ? 1 : 2;
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f %.*s", digits, value, static_cast<int>(best->name.size()),
                best->name.data());
  return text.data();
}

}  // namespace

Result<std::uint64_t> parse_duration_ns(std::string_view text) {
  const std::string copy(text);
  double ns = 0;
  if (parse_quantity(copy, kDurations, &ns)) return static_cast<std::uint64_t>(ns);
  return Status::error(Code::kInvalidArgument, "'%.60s' is no duration; write one like 90s, 250ms or 2h", copy.c_str());
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  double bytes = 0;
  if (parse_quantity(lower, kSizes, &bytes)) return static_cast<std::uint64_t>(bytes);
  return Status::error(Code::kInvalidArgument, "'%.60s' is no size; write one like 8GiB, 8G or 512M",
                       std::string(text).c_str());
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr Unit kSteps[] = {
      {"B", 1}, {"KiB", kKi}, {"MiB", kKi * kKi}, {"GiB", kKi * kKi * kKi}, {"TiB", kKi * kKi * kKi * kKi}};
  return print(static_cast<double>(bytes), kSteps);
}

std::string format_duration_ns(std::uint64_t ns) {
  static constexpr Unit kSteps[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  return print(static_cast<double>(ns), kSteps);
}

}  // namespace sluice
