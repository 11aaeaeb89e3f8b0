// What was measured of the roads that bytes take, and what it says: plain data and pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::cli::doctor {

// A card, as the driver tells it.
struct BandwidthCard {
  int index = 0;  // NVML's, where it knows the card, else the driver's
  std::string uuid, name;
  std::uint64_t memory_clock_khz = 0, bus_bits = 0;  // 0: not told
  std::uint64_t l2_bytes = 0, free_bytes = 0;
  std::uint64_t buffer_bytes = 0, host_bytes = 0;       // what is read or copied at once: on the card, from the host
  std::optional<unsigned> pcie_generation, pcie_width;  // the most that card and slot do together
  std::optional<double> memory_peak() const;            // bytes/s: 2 x clock x bits / 8
  std::optional<double> link_peak() const;              // bytes/s, one direction, after the line code
};

// How much of a card to use at once: so much more than L2 that what stays in it does not matter, and never more than
// half of the free memory for two buffers. `asked` is the user's wish, 0 for none; an emulated card has no cache to
// get past. Errors: kResourceExhausted; kInvalidArgument for a wish that L2 could hold a large part of.
Result<std::uint64_t> buffer_bytes(std::uint64_t l2_bytes, std::uint64_t free_bytes, std::uint64_t asked,
                                   bool simulated);

// One road, measured some times.
struct BandwidthRow {
  std::string name;         // fixed; docs/doctor.md has them
  std::optional<int> gpu;   // none: all at once
  std::optional<int> peer;  // where to, of a road between two
  std::optional<double> peak;
  std::vector<double> rates;  // bytes/s, of the samples that count
  unsigned thrown_away = 0;   // samples during which the card was throttled
  std::string missing;        // why there are none
  std::string shape;          // of the kernel that was fastest here; "" for the driver's own copies
  std::optional<double> median() const;
};

struct BandwidthReport {
  std::vector<BandwidthCard> cards;
  std::vector<BandwidthRow> rows;
  std::vector<std::string> throttled;  // the reasons that were seen
  bool throttle_known = false;         // some NVML told of throttling
  bool simulated = false;
};

// "4.81 TB/s"
std::string format_rate(double bytes_per_s);

nlohmann::json to_json(const BandwidthReport& report);
std::string to_text(const BandwidthReport& report);

}  // namespace sluice::cli::doctor
