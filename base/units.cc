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
  char* end = nullptr;
  const bool starts_as_number = !copy.empty() && ((copy[0] >= '0' && copy[0] <= '9') || copy[0] == '.');
  const double number = starts_as_number ? std::strtod(copy.c_str(), &end) : -1;
  if (starts_as_number && end != copy.c_str() && std::isfinite(number)) {
    for (const Unit& unit : kDurations) {
      if (unit.name == end && number * unit.scale < 9e18) return static_cast<std::uint64_t>(number * unit.scale);
    }
  }
  return Status::error(Code::kInvalidArgument, "'%.60s' is no duration; write one like 90s, 250ms or 2h", copy.c_str());
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
