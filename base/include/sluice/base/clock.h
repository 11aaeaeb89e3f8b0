// Time, in nanoseconds, on one clock that every process of a machine shares. Thread safe.
#pragma once

#include <cstdint>
#include <ctime>

namespace sluice {

inline constexpr std::uint64_t kNanosPerMicro = 1000;
inline constexpr std::uint64_t kNanosPerMilli = 1000 * 1000;
inline constexpr std::uint64_t kNanosPerSecond = 1000ull * 1000 * 1000;

// CLOCK_MONOTONIC: comparable between processes, does not jump, does not count suspend.
inline std::uint64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<std::uint64_t>(ts.tv_sec) * kNanosPerSecond + static_cast<std::uint64_t>(ts.tv_nsec);
}

// Sleeps at least `ns`; a signal may end it earlier.
inline void sleep_ns(std::uint64_t ns) {
  timespec ts{static_cast<std::time_t>(ns / kNanosPerSecond), static_cast<long>(ns % kNanosPerSecond)};
  nanosleep(&ts, nullptr);
}

}  // namespace sluice
