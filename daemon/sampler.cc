#include "sampler.h"

#include <spdlog/spdlog.h>
#include <sys/prctl.h>

#include <utility>

#include "sluice/base/clock.h"

namespace sluice::daemon {
namespace {

constexpr std::uint64_t kFreshNs = 200 * kNanosPerMilli;
constexpr std::uint64_t kWatchNs = kNanosPerSecond;
constexpr std::uint64_t kOpenAgainNs = 10 * kNanosPerSecond;

}  // namespace

Sampler::Sampler(std::function<std::string()> fallback_library, ClockGuardian* clocks,
                 std::function<void(Watch&)> on_look)
    : fallback_library_(std::move(fallback_library)),
      on_look_(std::move(on_look)),
      watch_(clocks),
      thread_(&Sampler::loop, this) {}

Sampler::~Sampler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Sampler::with_sample(Use use) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(use));
  }
  wake_.notify_all();
}

bool Sampler::watch(std::vector<std::string> uuids) {
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t now = now_ns();
    if (watched_ns_ != 0 && now - watched_ns_ < kWatchNs) return false;
    watched_ns_ = now;
    to_watch_ = std::move(uuids);
  }
  wake_.notify_all();
  return true;
}

void Sampler::loop() {
  prctl(PR_SET_NAME, "sluiced-nvml");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !waiting_.empty() || to_watch_; });
    if (stop_) return;
    const std::deque<Use> uses = std::exchange(waiting_, {});
    const auto watched = std::exchange(to_watch_, {});
    lock.unlock();
    if (!uses.empty()) refresh();
    for (const Use& use : uses) use(sample_);
    if (watched && ready()) {
      watch_.look(*nvml_, *watched);
      on_look_(watch_);
    }
    lock.lock();
  }
}

void Sampler::open_library() {
  opened_ns_ = now_ns();
  Result<std::shared_ptr<health::Nvml>> opened = health::Nvml::open();
  if (!opened.ok()) {
    const std::string fallback = fallback_library_();
    if (!fallback.empty()) opened = health::Nvml::open(fallback.c_str());
  }
  if (opened.ok()) {
    nvml_ = *opened;
  } else {
    spdlog::info("no figures from the cards: {}", opened.status().message());
  }
}

bool Sampler::ready() {
  if (nvml_ == nullptr && (opened_ns_ == 0 || now_ns() - opened_ns_ >= kOpenAgainNs)) open_library();
  return nvml_ != nullptr;
}

void Sampler::refresh() {
  const std::uint64_t now = now_ns();
  if (sampled_ns_ && now - *sampled_ns_ < kFreshNs) return;
  const bool is_ready = ready();
  sampled_ns_ = now;
  sample_ = Sample{};
  if (!is_ready) return;
  Result<std::vector<health::Device>> devices = nvml_->devices();
  if (!devices.ok()) {
    // A driver that was reloaded wants a new start.
    spdlog::warn("{}", devices.status().message());
    nvml_.reset();
    return;
  }
  sample_.available = true;
  sample_.simulated = nvml_->simulated();
  sample_.devices = std::move(*devices);
  for (const health::Device& device : sample_.devices) {
    if (device.uuid.empty()) continue;
    Result<std::vector<health::Process>> processes = nvml_->compute_processes(device.uuid);
    if (processes.ok()) sample_.processes[device.uuid] = std::move(*processes);
    sample_.pulses[device.uuid] = pulse_of(*nvml_, device.uuid, true);
  }
}

}  // namespace sluice::daemon
