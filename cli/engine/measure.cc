#include "measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "sluice/base/clock.h"

namespace sluice::cli {
namespace {

// A line of /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      return std::stoull(line.substr(key.size())) * 1024;
    }
  }
  return 0;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Result<Latency> measure_latency(engine::Session& session, double seconds, Progress& progress) {
  const auto repeat = [&](const char* what, double limit_s, std::size_t least,
                          std::vector<double>& times_us) -> Status {
    const std::uint64_t start = now_ns();
    std::uint64_t now = start, shown = 0;
    while (times_us.size() < least || static_cast<double>(now - start) < limit_s * 1e9) {
      const std::uint64_t before = now_ns();
      if (Status status = session.run(); !status.ok()) {
        return status;
      }
      now = now_ns();
      times_us.push_back(static_cast<double>(now - before) / 1e3);
      if (now - shown > 200'000'000) {
        progress.show(fmt::format("{}: {:.0f} of {:.0f} s, {} runs", what, static_cast<double>(now - start) / 1e9,
                                  limit_s, times_us.size()));
        shown = now;
      }
    }
    return {};
  };
  std::vector<double> warm_up, timed;
  if (Status status = repeat("warming up", seconds / 5, 3, warm_up); !status.ok()) {
    return status;
  }
  const std::uint64_t start = now_ns();
  if (Status status = repeat("measuring", seconds, 10, timed); !status.ok()) {
    return status;
  }
  const double elapsed_s = static_cast<double>(now_ns() - start) / 1e9;
  progress.clear();
  const auto runs = static_cast<double>(timed.size());
  return Latency{percentile(timed, 50), percentile(timed, 99), runs / elapsed_s};
}

MemoryMeter::MemoryMeter() {
  std::ofstream("/proc/self/clear_refs") << "5";  // sets VmHWM back to what is resident now
  before_ = status_bytes("VmRSS:");
}

std::uint64_t MemoryMeter::peak_bytes() const {
  const std::uint64_t peak = status_bytes("VmHWM:");
  return peak > before_ ? peak - before_ : 0;
}

}  // namespace sluice::cli
