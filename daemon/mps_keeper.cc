#include "mps_keeper.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "sluice/base/clock.h"

namespace sluice::daemon {
namespace {

constexpr std::uint64_t kBetweenNs = kNanosPerSecond;  // it reads the environments of all the user's processes

}  // namespace

bool MpsKeeper::look(std::uint64_t now) {
  if (ending_.valid()) {
    if (ending_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return true;
    if (const Result<mps::End> end = ending_.get(); !end.ok()) {
      spdlog::warn("the MPS daemon cannot be ended: {}", end.status().message());
      given_up_ = true;
    }
    next_ns_ = now + kBetweenNs;
  }
  if (given_up_ || !mps::has_own(runtime_dir_)) return false;
  if (now >= next_ns_) ending_ = std::async(std::launch::async, [this] { return mps::end_unused(runtime_dir_); });
  return true;
}

}  // namespace sluice::daemon
