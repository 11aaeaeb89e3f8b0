// Who held the GPU: samples of the board while jobs run under Sluice.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace sluice::bench {

enum class JobState : std::uint8_t {
  kIdle,     // no work submitted
  kRunning,  // work submitted, its gate open
  kHeld,     // work submitted, its gate closed
};

struct Span {
  double begin_us, end_us;  // in the device's time since the first sample
  JobState state;           // never kIdle: gaps are idle
};

struct Timeline {
  std::vector<std::vector<Span>> jobs;  // in the order of the names given
  double length_us = 0;
};

// Samples the board of GPU `uuid` from start() to stop(). Thread safety: one thread calls both.
class TimelineSampler {
 public:
  // `names`: of jobs, as on the board. A sample is taken every `period_us` of the device's time.
  TimelineSampler(std::string uuid, std::vector<std::string> names, double real_per_shown, double period_us = 200);
  ~TimelineSampler();
  TimelineSampler(const TimelineSampler&) = delete;
  TimelineSampler& operator=(const TimelineSampler&) = delete;

  void start();
  Timeline stop();  // empty if there was no board to sample

 private:
  void run();

  const std::string uuid_;
  const std::vector<std::string> names_;
  const double real_per_shown_;
  const double period_us_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
  Timeline timeline_;  // the thread's until it is joined
};

}  // namespace sluice::bench
