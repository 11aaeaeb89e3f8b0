#include "common/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "sluice/base/clock.h"

namespace sluice::example {
namespace {

volatile std::sig_atomic_t g_stop = 0;
extern "C" void on_stop_signal(int) { g_stop = 1; }

constexpr std::uint64_t kSpinNs = 80'000;              // a sleep may overshoot by this much
constexpr std::uint64_t kLongestSleepNs = 20'000'000;  // how late a stop request may be seen

}  // namespace

DeviceClock::DeviceClock(double real_per_shown) : real_per_shown_(real_per_shown), start_ns_(sluice::now_ns()) {}

double DeviceClock::now_us() const {
  return static_cast<double>(sluice::now_ns() - start_ns_) / (kNanosPerMicro * real_per_shown_);
}

void DeviceClock::wait_until_us(double us) const {
  auto until = start_ns_ + static_cast<std::uint64_t>(us * kNanosPerMicro * real_per_shown_);
  for (std::uint64_t now = sluice::now_ns(); now < until && !stop_requested(); now = sluice::now_ns()) {
    if (until - now > kSpinNs) sleep_ns(std::min(until - now - kSpinNs, kLongestSleepNs));
  }
}

void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool stop_requested() { return g_stop != 0; }

LatencyFile::~LatencyFile() {
  if (fd_ >= 0) close(fd_);
}

Status LatencyFile::open() {
  const char* path = std::getenv("SLUICE_LATENCY_FILE");
  if (path == nullptr || *path == 0) return {};
  fd_ = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    return Status::error(Code::kInvalidArgument, "SLUICE_LATENCY_FILE: cannot write %s: %s", path, strerror(errno));
  }
  return {};
}

void LatencyFile::add(double us) {
  if (fd_ < 0) return;
  char line[48];
  pending_.append(line, static_cast<std::size_t>(std::snprintf(line, sizeof line, "%.3f\n", us)));
}

Status LatencyFile::flush() {
  if (pending_.empty()) return {};
  ssize_t written = write(fd_, pending_.data(), pending_.size());
  if (written != static_cast<ssize_t>(pending_.size())) {
    return Status::error(Code::kInternal, "SLUICE_LATENCY_FILE: write failed: %s", strerror(errno));
  }
  pending_.clear();
  return {};
}

double percentile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(values.size())));
  std::size_t index = std::clamp<std::size_t>(rank, 1, values.size()) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

int fail(const char* program, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", program, status.message());
  return exit_code(status);
}

}  // namespace sluice::example
