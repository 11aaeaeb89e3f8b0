#include "figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "../../output.h"
#include "../judge.h"
#include "sluice/base/units.h"

namespace sluice::cli::doctor {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kRounded = kMiB;    // a multiple of every kernel's tile
constexpr std::uint64_t kWantedOfL2 = 128;  // what L2 holds of it is then less than 1 %
constexpr std::uint64_t kLeastOfL2 = 8;
constexpr std::uint64_t kWanted = 1024 * kMiB;  // so that a launch is long beside its beginning and end
constexpr std::uint64_t kWantedOfEmulated = 64 * kMiB;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json row_json(const BandwidthRow& row) {
  json out = {{"name", row.name},
              {"gpu", or_null(row.gpu)},
              {"peer", or_null(row.peer)},
              {"bytes_per_s", or_null(row.median())},
              {"ratio", nullptr},
              {"peak_bytes_per_s", or_null(row.peak)},
              {"lowest_bytes_per_s", nullptr},
              {"highest_bytes_per_s", nullptr},
              {"samples", row.rates.size()},
              {"thrown_away", row.thrown_away}};
  if (!row.rates.empty()) {
    const auto [low, high] = std::minmax_element(row.rates.begin(), row.rates.end());
    out["lowest_bytes_per_s"] = *low;
    out["highest_bytes_per_s"] = *high;
    out["rates_bytes_per_s"] = row.rates;
    if (row.peak) out["ratio"] = *row.median() / *row.peak;
  }
  if (!row.missing.empty()) out["missing"] = row.missing;
  if (!row.shape.empty()) out["shape"] = row.shape;
  return out;
}

std::string formula(const BandwidthCard& card) {
  return fmt::format("2 x {:g} MHz x {} bit / 8", static_cast<double>(card.memory_clock_khz) / 1e3, card.bus_bits);
}

json card_json(const BandwidthCard& card) {
  return {{"index", card.index},
          {"uuid", card.uuid},
          {"name", card.name},
          {"memory_clock_khz", card.memory_clock_khz},
          {"bus_bits", card.bus_bits},
          {"peak_bytes_per_s", or_null(card.memory_peak())},
          {"formula", card.memory_peak() ? json(formula(card)) : json()},
          {"link_peak_bytes_per_s", or_null(card.link_peak())},
          {"l2_bytes", card.l2_bytes},
          {"buffer_bytes", card.buffer_bytes},
          {"host_buffer_bytes", card.host_bytes}};
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string heading(const BandwidthCard& card, bool simulated) {
  const std::optional<double> memory = card.memory_peak(), link = card.link_peak();
  std::string text = fmt::format("GPU {}: {}{}\n", card.index, printable(card.name), simulated ? "; simulated" : "");
  text += memory ? fmt::format("  memory {} = {}", format_rate(*memory), formula(card))
                 : std::string("  memory: the driver tells no clock or bus width");
  if (link) text += fmt::format("; PCIe {} x{} {}", *card.pcie_generation, *card.pcie_width, format_rate(*link));
  return text + fmt::format("\n  L2 {}; {} at once on the card, {} from and to the host\n", format_bytes(card.l2_bytes),
                            format_bytes(card.buffer_bytes), format_bytes(card.host_bytes));
}

}  // namespace

std::optional<double> BandwidthCard::memory_peak() const {
  if (memory_clock_khz == 0 || bus_bits == 0) return std::nullopt;
  return 2e3 * static_cast<double>(memory_clock_khz) * static_cast<double>(bus_bits) / 8;
}

std::optional<double> BandwidthCard::link_peak() const {
  if (!pcie_generation || !pcie_width || pcie_bytes_per_lane(*pcie_generation) == 0) return std::nullopt;
  return pcie_bytes_per_lane(*pcie_generation) * *pcie_width;
}

Result<std::uint64_t> buffer_bytes(std::uint64_t l2_bytes, std::uint64_t free_bytes, std::uint64_t asked,
                                   bool simulated) {
  const std::uint64_t least = std::max(kRounded, kLeastOfL2 * l2_bytes);
  const std::uint64_t most = free_bytes / 4 / kRounded * kRounded;
  if (asked != 0 && asked < least) {
    return Status::error(Code::kInvalidArgument, "--size: L2 has %s, so it takes %s or more",
                         format_bytes(l2_bytes).c_str(), format_bytes(least).c_str());
  }
  if (most < std::max(least, asked)) {
    return Status::error(Code::kResourceExhausted, "%s of device memory are free; it takes %s: end other programs%s",
                         format_bytes(free_bytes).c_str(), format_bytes(4 * std::max(least, asked)).c_str(),
                         asked == 0 ? "" : ", or give a smaller --size");
  }
  const std::uint64_t wanted = asked != 0  ? asked
                               : simulated ? std::max(least, kWantedOfEmulated)
                                           : std::max(kWantedOfL2 * l2_bytes, kWanted);
  return (std::min(wanted, most) + kRounded - 1) / kRounded * kRounded;
}

std::optional<double> BandwidthRow::median() const {
  if (rates.empty()) return std::nullopt;
  std::vector<double> sorted = rates;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

std::string format_rate(double bytes_per_s) {
  const bool tera = bytes_per_s >= 1e12;
  return fmt::format("{:.{}f} {}B/s", bytes_per_s / (tera ? 1e12 : 1e9), tera || bytes_per_s < 1e10 ? 2 : 1,
                     tera ? 'T' : 'G');
}

json to_json(const BandwidthReport& report) {
  json rows = json::array(), cards = json::array();
  for (const BandwidthRow& row : report.rows) rows.push_back(row_json(row));
  for (const BandwidthCard& card : report.cards) cards.push_back(card_json(card));
  return {{"peak_bytes_per_s", report.cards.empty() ? json() : or_null(report.cards.front().memory_peak())},
          {"rows", rows},
          {"devices", cards},
          {"throttle_known", report.throttle_known},
          {"throttled", report.throttled},
          {"simulated", report.simulated}};
}

std::string to_text(const BandwidthReport& report) {
  std::string text;
  for (const BandwidthCard& card : report.cards) text += heading(card, report.simulated);
  using Align = Table::Align;
  Table table({{"ROAD", Align::kLeft},
               {"GPU", Align::kLeft},
               {"MEDIAN", Align::kRight},
               {"LOWEST", Align::kRight},
               {"HIGHEST", Align::kRight},
               {"OF PEAK", Align::kRight}});
  std::size_t samples = 0, thrown_away = 0;
  std::string missing;
  for (const BandwidthRow& row : report.rows) {
    samples += row.rates.size() + row.thrown_away;
    thrown_away += row.thrown_away;
    std::string where = row.gpu ? std::to_string(*row.gpu) : "all";
    if (row.peer) where += " to " + std::to_string(*row.peer);
    if (!row.missing.empty()) missing += fmt::format("{}, GPU {}: {}\n", words(row.name), where, row.missing);
    if (row.rates.empty()) {
      table.add({words(row.name), where, "-", "-", "-", "-"});
      continue;
    }
    const auto [low, high] = std::minmax_element(row.rates.begin(), row.rates.end());
    table.add({words(row.name), where, format_rate(*row.median()), format_rate(*low), format_rate(*high),
               row.peak ? fmt::format("{:.3f}", *row.median() / *row.peak) : "-"});
  }
  text += "\n" + table.text() + printable(missing);
  if (thrown_away > 0) {
    text += fmt::format("{} of {} samples were thrown away: the clocks were held down ({})\n", thrown_away, samples,
                        fmt::join(report.throttled, ", "));
  } else if (!report.throttle_known) {
    text += "NVML does not tell whether the clocks were held down\n";
  }
  return text;
}

}  // namespace sluice::cli::doctor
