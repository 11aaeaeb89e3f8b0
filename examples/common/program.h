// What the two example programs share besides CUDA: the clock in the device's time, the file of latencies, stopping.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::example {

// Microseconds in the device's time: on the emulator, real time divided by SLUICE_EMU_SCALE, so that rates, durations
// and latencies mean the same whatever the scale. Thread safety: values.
class DeviceClock {
 public:
  explicit DeviceClock(double real_per_shown);
  double now_us() const;                // since the clock was made
  void wait_until_us(double us) const;  // sleeps, then spins the last stretch; returns early once stop_requested()

 private:
  double real_per_shown_;
  std::uint64_t start_ns_;
};

// Makes SIGTERM and SIGINT set the flag that stop_requested() reads, instead of ending the process.
void stop_on_signals();
bool stop_requested();

// Appends latencies to the file that SLUICE_LATENCY_FILE names, one line of microseconds each; without it does
// nothing. One write for all of flush()'s lines, so several processes can share a file.
class LatencyFile {
 public:
  LatencyFile() = default;
  ~LatencyFile();
  LatencyFile(const LatencyFile&) = delete;
  LatencyFile& operator=(const LatencyFile&) = delete;

  Status open();  // Errors: kInvalidArgument when the file cannot be written
  void add(double us);
  Status flush();  // Errors: kInternal when the file cannot be written

 private:
  int fd_ = -1;
  std::string pending_;
};

// The value below which `quantile` (0 to 1) of the values lie, by the nearest rank; 0 for none.
double percentile(std::vector<double> values, double quantile);

// Prints the status's message as "program: message" on standard error and returns its exit code.
int fail(const char* program, const Status& status);

}  // namespace sluice::example
