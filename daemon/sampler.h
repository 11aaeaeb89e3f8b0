// What NVML says, asked only when somebody wants to know: a thread of its own, because NVML takes milliseconds, and
// on a cold driver seconds. Thread safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sluice/health.h"
#include "watch.h"

namespace sluice::daemon {

struct Sample {
  bool available = false;  // NVML answered; else all below is empty
  bool simulated = false;
  std::vector<health::Device> devices;
  std::map<std::string, std::vector<health::Process>> processes;  // by UUID; absent where not supported
  std::map<std::string, health::Vitals> pulses;                   // by UUID, of those that answer
};

class Sampler {
 public:
  using Use = std::function<void(const Sample&)>;

  // `fallback_library` names an NVML to try when the usual one is missing, or "" for none.
  // `on_look` is called on the sampler's thread after cards were watched.
  Sampler(std::function<std::string()> fallback_library, ClockGuardian* clocks, std::function<void(Watch&)> on_look);
  ~Sampler();  // ends the thread; what is still waiting is dropped

  // Calls `use` on the sampler's thread with a sample that is at most kFreshNs old.
  void with_sample(Use use);

  // Has the cards with these UUIDs watched once, on the sampler's thread; at most once a second. Returns false where it
  // is too early for that.
  bool watch(std::vector<std::string> uuids);

 private:
  void loop();
  void refresh();
  void open_library();
  bool ready();  // NVML is open, or could be opened

  const std::function<std::string()> fallback_library_;
  const std::function<void(Watch&)> on_look_;
  // Of the thread only.
  std::shared_ptr<health::Nvml> nvml_;
  std::uint64_t opened_ns_ = 0;
  std::optional<std::uint64_t> sampled_ns_;
  Sample sample_;
  Watch watch_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Use> waiting_;
  std::optional<std::vector<std::string>> to_watch_;
  std::uint64_t watched_ns_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice::daemon
