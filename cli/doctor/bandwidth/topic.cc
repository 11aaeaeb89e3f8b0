// sluice doctor bandwidth: how fast bytes move, to and from the cards, on them and between them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>

#include "../../installation.h"
#include "../../machine.h"
#include "../../output.h"
#include "../../verbs.h"
#include "../topics.h"
#include "gpu.h"
#include "sluice/base/units.h"

namespace sluice::cli::doctor {
namespace {

namespace throttle = health::throttle;

constexpr unsigned kRepeats = 10;
constexpr unsigned kMostRepeats = 1000;
constexpr std::uint64_t kHeldDown = throttle::kPowerCap | throttle::kAnyHeat | throttle::kFaults;

struct Names {
  Road road;
  const char* alone;
  const char* all;  // null: not measured at once
  bool on_device;   // the peak is the memory's, not the link's
};
constexpr Names kRoads[] = {
    {Road::kHostToDevicePinned, "host_to_device_pinned", "all_host_to_device_pinned", false},
    {Road::kHostToDevicePageable, "host_to_device_pageable", nullptr, false},
    {Road::kDeviceToHostPinned, "device_to_host_pinned", "all_device_to_host_pinned", false},
    {Road::kDeviceToHostPageable, "device_to_host_pageable", nullptr, false},
    {Road::kRead, "read", "all_read", true},
    {Road::kWrite, "write", nullptr, true},
    {Road::kCopy, "copy", nullptr, true},
    {Road::kDriverCopy, "copy_by_driver", nullptr, true},
};

class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() { say(""); }
  void say(const std::string& text) const {
    if (shown_) std::fprintf(stderr, "\r\033[K%s", text.c_str());
  }

 private:
  bool shown_;
};

// What is measured: some cards, on one road, together.
struct Leg {
  std::size_t row;
  Road road;
  std::vector<BandwidthGpu*> gpus;
  BandwidthGpu* peer = nullptr;
};

class Measurement {
 public:
  Measurement(const BandwidthDriver& driver, const health::Nvml* nvml) : driver_(driver), nvml_(nvml) {
    report_.simulated = driver.simulated;
  }

  Status open(const std::string& wanted, std::uint64_t asked_bytes) {
    int count = 0;
    if (Status s = driver_.check(driver_.device_count(&count), "cuDeviceGetCount"); !s.ok()) return s;
    std::vector<health::Device> known;
    if (nvml_ != nullptr) {
      if (Result<std::vector<health::Device>> devices = nvml_->devices(); devices.ok()) known = std::move(*devices);
    }
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      // The card is looked at before it is opened: a context is memory of somebody's.
      const Result<BandwidthCard> described = BandwidthGpu::describe(driver_, ordinal);
      if (!described.ok()) return described.status();
      int index = ordinal;
      for (const health::Device& device : known) {
        if (device.uuid == described->uuid) index = device.index;
      }
      if (!wanted.empty() && wanted != std::to_string(index) && wanted != described->uuid) continue;
      warn_of_others(index, described->uuid);
      Result<std::unique_ptr<BandwidthGpu>> gpu = BandwidthGpu::open(driver_, ordinal, asked_bytes);
      if (!gpu.ok()) return Status::error(gpu.status().code(), "GPU %d: %s", index, gpu.status().message());
      (*gpu)->card().index = index;
      gpus_.push_back(std::move(*gpu));
    }
    if (!gpus_.empty()) return {};
    return wanted.empty() ? Status::error(Code::kUnavailable, "the driver finds no GPU")
                          : Status::error(Code::kUnavailable, "there is no GPU '%.60s' here", wanted.c_str());
  }

  Status run(unsigned repeats) {
    for (const auto& gpu : gpus_) {
      progress_.say("GPU " + std::to_string(gpu->card().index) + ": looking for the fastest kernels");
      if (Status s = gpu->tune(); !s.ok()) return s;
      look_at_link(&gpu->card());
      report_.cards.push_back(gpu->card());
    }
    add_legs();
    // As many rounds again at most, where samples had to be thrown away.
    for (unsigned round = 0; round < 2 * repeats; ++round) {
      progress_.say("measuring: " + std::to_string(round + 1) + " of " + std::to_string(repeats));
      bool missing = false;
      for (const Leg& leg : legs_) {
        const BandwidthRow& row = report_.rows[leg.row];
        if (!row.missing.empty() || row.rates.size() >= repeats) continue;
        sample(leg);
        missing |= row.missing.empty() && row.rates.size() < repeats;
      }
      if (!missing) break;
    }
    for (BandwidthRow& row : report_.rows) {
      if (row.rates.empty() && row.missing.empty()) row.missing = "the clocks were held down during each sample";
    }
    for (const std::string& reason : throttle::reasons(seen_)) report_.throttled.push_back(reason);
    return {};
  }

  const BandwidthReport& report() const { return report_; }

 private:
  void warn_of_others(int index, const std::string& uuid) const {
    if (nvml_ == nullptr) return;
    const Result<std::vector<health::Process>> others = nvml_->compute_processes(uuid);
    if (!others.ok() || others->empty()) return;
    say("GPU " + std::to_string(index) + " is in use by " + std::to_string(others->size()) +
        (others->size() == 1 ? " process" : " processes") + ": what they move is missing from the figures");
  }

  void look_at_link(BandwidthCard* card) const {
    if (nvml_ == nullptr) return;
    const Result<health::Vitals> vitals = nvml_->vitals(card->uuid);
    if (!vitals.ok()) return;
    card->pcie_generation = vitals->pcie_generation_max;
    card->pcie_width = vitals->pcie_width_max;
  }

  void add(const Names& names, std::vector<BandwidthGpu*> gpus, bool all) {
    BandwidthRow row;
    row.name = all ? names.all : names.alone;
    if (!all) row.gpu = gpus.front()->card().index;
    if (!all) row.shape = gpus.front()->shape(names.road);
    row.peak = 0;
    for (BandwidthGpu* gpu : gpus) {
      const auto one = names.on_device ? gpu->card().memory_peak() : gpu->card().link_peak();
      row.peak = row.peak && one ? std::optional<double>(*row.peak + *one) : std::nullopt;
    }
    legs_.push_back({report_.rows.size(), names.road, std::move(gpus), nullptr});
    report_.rows.push_back(std::move(row));
  }

  void add_legs() {
    std::vector<BandwidthGpu*> all;
    for (const auto& gpu : gpus_) {
      all.push_back(gpu.get());
      for (const Names& names : kRoads) add(names, {gpu.get()}, false);
    }
    if (all.size() < 2) return;
    for (BandwidthGpu* from : all) {
      for (BandwidthGpu* to : all) {
        if (from == to) continue;
        BandwidthRow row;
        row.name = from->connect(to) ? "peer" : "peer_through_host";
        row.gpu = from->card().index;
        row.peer = to->card().index;
        legs_.push_back({report_.rows.size(), Road::kPeer, {from}, to});
        report_.rows.push_back(std::move(row));
      }
    }
    for (const Names& names : kRoads) {
      if (names.all != nullptr) add(names, all, true);
    }
  }

  // Reasons for which the clocks are held down now.
  std::uint64_t held_down(const Leg& leg) {
    std::uint64_t bits = 0;
    const auto look = [&](BandwidthGpu* gpu) {
      if (nvml_ == nullptr || gpu == nullptr) return;
      const Result<health::Vitals> pulse = nvml_->pulse(gpu->card().uuid);
      if (!pulse.ok() || !pulse->throttle) return;
      report_.throttle_known = true;
      bits |= *pulse->throttle & kHeldDown;
    };
    for (BandwidthGpu* gpu : leg.gpus) look(gpu);
    look(leg.peer);
    return bits;
  }

  void sample(const Leg& leg) {
    BandwidthRow& row = report_.rows[leg.row];
    const std::uint64_t before = held_down(leg);
    double longest = 0, bytes = 0;
    Status status;
    for (BandwidthGpu* gpu : leg.gpus) {
      if (status.ok()) status = gpu->enqueue(leg.road, leg.peer);
    }
    for (BandwidthGpu* gpu : leg.gpus) {
      if (!status.ok()) break;
      const Result<double> seconds = gpu->wait_seconds();
      if (!seconds.ok()) {
        status = seconds.status();
        break;
      }
      longest = std::max(longest, *seconds);
      bytes += static_cast<double>(gpu->bytes(leg.road, leg.peer));
    }
    if (!status.ok()) {
      row.missing = status.message();
      return;
    }
    const std::uint64_t bits = before | held_down(leg);
    seen_ |= bits;
    if (bits != 0) {
      ++row.thrown_away;
    } else {
      row.rates.push_back(bytes / longest);
    }
  }

  const BandwidthDriver& driver_;
  const health::Nvml* nvml_;
  Progress progress_;
  std::vector<std::unique_ptr<BandwidthGpu>> gpus_;
  std::vector<Leg> legs_;
  BandwidthReport report_;
  std::uint64_t seen_ = 0;  // reasons of throttling
};

}  // namespace

int bandwidth_topic(std::vector<std::string> args) {
  constexpr char kName[] = "doctor bandwidth";
  bool as_json = false;
  std::string gpu, size;
  unsigned repeats = kRepeats;
  CLI::App app("Measures how fast bytes move: from and to the host, on each card, and between cards.", kName);
  set_usage(app, "Usage: sluice doctor bandwidth [OPTIONS]");
  app.add_option("-g,--gpu,--device", gpu, "Only this card, by index or UUID")->option_text("GPU");
  app.add_option("--repeats", repeats, "Samples of each figure")
      ->option_text("N")
      ->check(CLI::Range(1u, kMostRepeats))
      ->capture_default_str();
  app.add_option("--size", size, "Bytes that are read or copied on the card at once, such as 1GiB")
      ->option_text("SIZE");
  app.add_flag("--json", as_json, "As JSON");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  std::uint64_t asked = 0;
  if (!size.empty()) {
    const Result<std::uint64_t> bytes = parse_bytes(size);
    if (!bytes.ok() || *bytes == 0) return usage_error(kName, "--size '" + size + "' is no size, such as 1GiB");
    asked = *bytes;
  }

  const Result<DriverChoice> chosen = choose_driver(find_installation());
  if (!chosen.ok()) return fail(kName, chosen.status());
  if (setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0) != 0) return fail(kName, Status::error(Code::kInternal, "setenv"));
  const Result<BandwidthDriver> driver = BandwidthDriver::open();
  if (!driver.ok()) return fail(kName, driver.status());
  const Result<std::shared_ptr<health::Nvml>> nvml = health::Nvml::open();

  Measurement measurement(*driver, nvml.ok() ? nvml->get() : nullptr);
  Status status = measurement.open(gpu, asked);
  if (status.ok()) status = measurement.run(repeats);
  if (!status.ok()) return fail(kName, status);
  const BandwidthReport& report = measurement.report();
  if (as_json) {
    print_json(to_json(report));
  } else {
    std::fputs(to_text(report).c_str(), stdout);
  }
  const auto was_measured = [](const BandwidthRow& row) { return !row.rates.empty(); };
  return std::any_of(report.rows.begin(), report.rows.end(), was_measured) ? kExitOk : kExitFailed;
}

}  // namespace sluice::cli::doctor
