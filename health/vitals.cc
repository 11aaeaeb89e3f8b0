// What NVML knows of a card's health, call by call.
#include <dlfcn.h>

#include <cstdio>

#include "functions.h"

namespace sluice::health {
namespace {

// Asks one card. Functions are looked up by name each time: that costs nothing beside the call, and an old driver may
// lack any of them.
class Reader {
 public:
  Reader(void* library, DeviceHandle device, Vitals* vitals) : library_(library), device_(device), vitals_(vitals) {}

  // Calls `name`(device, args..., &out...) and returns whether it succeeded.
  template <class... Args>
  bool call(const char* name, Args... args) {
    const auto function = reinterpret_cast<Return (*)(DeviceHandle, Args...)>(dlsym(library_, name));
    if (function == nullptr) return false;
    const Return code = function(device_, args...);
    if (code == nvml::kGpuLost) vitals_->lost = true;
    if (code == nvml::kNoPermission) vitals_->denied.emplace_back(name);
    return code == nvml::kSuccess;
  }

  template <class Out, class... Args>
  std::optional<Out> ask(const char* name, Args... args) {
    Out out{};
    return call(name, args..., &out) ? std::optional<Out>(out) : std::nullopt;
  }

  std::optional<bool> ask_flag(const char* name) {
    const std::optional<int> value = ask<int>(name);
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
  }

  std::optional<std::uint64_t> ask_count(const char* name, int first, int second) {
    const auto value = ask<unsigned long long>(name, first, second);
    return value ? std::optional<std::uint64_t>(*value) : std::nullopt;
  }

 private:
  void* library_;
  DeviceHandle device_;
  Vitals* vitals_;
};

void read_pulse(Reader& card, Vitals* v) {
  v->temperature_c = card.ask<unsigned>("nvmlDeviceGetTemperature", nvml::kTemperatureGpu);
  v->slowdown_c = card.ask<unsigned>("nvmlDeviceGetTemperatureThreshold", nvml::kThresholdSlowdown);
  v->operating_max_c = card.ask<unsigned>("nvmlDeviceGetTemperatureThreshold", nvml::kThresholdGpuMax);
  auto bits = card.ask<unsigned long long>("nvmlDeviceGetCurrentClocksEventReasons");
  if (!bits) bits = card.ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons");
  if (bits) v->throttle = *bits;
  v->power_mw = card.ask<unsigned>("nvmlDeviceGetPowerUsage");
  v->power_limit_mw = card.ask<unsigned>("nvmlDeviceGetEnforcedPowerLimit");
  if (!v->power_limit_mw) v->power_limit_mw = card.ask<unsigned>("nvmlDeviceGetPowerManagementLimit");
  constexpr char kErrors[] = "nvmlDeviceGetTotalEccErrors";
  v->ecc_volatile.corrected = card.ask_count(kErrors, nvml::kEccCorrected, nvml::kEccVolatile);
  v->ecc_volatile.uncorrected = card.ask_count(kErrors, nvml::kEccUncorrected, nvml::kEccVolatile);
}

void read_bus(Reader& card, Vitals* v) {
  if (const auto pci = card.ask<nvml::PciInfo>("nvmlDeviceGetPciInfo_v3")) {
    char text[16];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    v->pci = text;
  }
  v->pcie_generation = card.ask<unsigned>("nvmlDeviceGetCurrPcieLinkGeneration");
  v->pcie_width = card.ask<unsigned>("nvmlDeviceGetCurrPcieLinkWidth");
  v->pcie_generation_max = card.ask<unsigned>("nvmlDeviceGetMaxPcieLinkGeneration");
  v->pcie_width_max = card.ask<unsigned>("nvmlDeviceGetMaxPcieLinkWidth");
  v->pcie_generation_card = card.ask<unsigned>("nvmlDeviceGetGpuMaxPcieLinkGeneration");
  v->pcie_replays = card.ask<unsigned>("nvmlDeviceGetPcieReplayCounter");
}

void read_modes(Reader& card, Vitals* v) {
  v->persistence = card.ask_flag("nvmlDeviceGetPersistenceMode");
  if (const auto mode = card.ask<int>("nvmlDeviceGetComputeMode")) v->compute_mode = static_cast<ComputeMode>(*mode);
  unsigned now = 0, pending = 0;
  if (card.call("nvmlDeviceGetMigMode", &now, &pending)) v->mig = now != 0;
  v->performance_state = card.ask<unsigned>("nvmlDeviceGetPerformanceState");
  v->sm_clock_mhz = card.ask<unsigned>("nvmlDeviceGetClockInfo", nvml::kClockSm);
  v->sm_clock_max_mhz = card.ask<unsigned>("nvmlDeviceGetMaxClockInfo", nvml::kClockSm);
  v->memory_clock_mhz = card.ask<unsigned>("nvmlDeviceGetClockInfo", nvml::kClockMemory);
  v->memory_clock_max_mhz = card.ask<unsigned>("nvmlDeviceGetMaxClockInfo", nvml::kClockMemory);
  v->shutdown_c = card.ask<unsigned>("nvmlDeviceGetTemperatureThreshold", nvml::kThresholdShutdown);
  v->power_default_mw = card.ask<unsigned>("nvmlDeviceGetPowerManagementDefaultLimit");
  const auto violation = [&](int policy) -> std::optional<std::uint64_t> {
    const auto time = card.ask<nvml::ViolationTime>("nvmlDeviceGetViolationStatus", policy);
    return time ? std::optional<std::uint64_t>(time->violation_ns) : std::nullopt;
  };
  v->power_violation_ns = violation(nvml::kPolicyPower);
  v->thermal_violation_ns = violation(nvml::kPolicyThermal);
  v->board_violation_ns = violation(nvml::kPolicyBoard);
  v->reliability_violation_ns = violation(nvml::kPolicyReliability);
}

void read_memory_errors(Reader& card, Vitals* v) {
  int now = 0, pending = 0;
  if (card.call("nvmlDeviceGetEccMode", &now, &pending)) {
    v->ecc = now != 0;
    v->ecc_pending = pending != 0;
  }
  constexpr char kErrors[] = "nvmlDeviceGetTotalEccErrors";
  v->ecc_aggregate.corrected = card.ask_count(kErrors, nvml::kEccCorrected, nvml::kEccAggregate);
  v->ecc_aggregate.uncorrected = card.ask_count(kErrors, nvml::kEccUncorrected, nvml::kEccAggregate);
  unsigned corrected = 0, uncorrected = 0, rows_pending = 0, failed = 0;
  if (card.call("nvmlDeviceGetRemappedRows", &corrected, &uncorrected, &rows_pending, &failed)) {
    v->rows_corrected = corrected;
    v->rows_uncorrected = uncorrected;
    v->rows_pending = rows_pending != 0;
    v->rows_failed = failed != 0;
  }
  // Room for more pages than any card may retire (64), so that one call tells the number.
  unsigned long long addresses[512];
  const auto pages = [&](int cause) -> std::optional<unsigned> {
    unsigned count = sizeof addresses / sizeof addresses[0];
    return card.call("nvmlDeviceGetRetiredPages", cause, &count, &addresses[0]) ? std::optional<unsigned>(count)
                                                                                : std::nullopt;
  };
  v->pages_single_bit = pages(nvml::kRetiredSingleBit);
  v->pages_double_bit = pages(nvml::kRetiredDoubleBit);
  v->pages_pending = card.ask_flag("nvmlDeviceGetRetiredPagesPendingStatus");
}

}  // namespace

Result<Vitals> Nvml::look(const std::string& uuid, bool all) const {
  const Result<DeviceHandle> handle = functions_->find(uuid);
  if (!handle.ok()) return handle.status();
  Vitals vitals;
  Reader card(functions_->library, *handle, &vitals);
  read_pulse(card, &vitals);
  if (all && !vitals.lost) {
    read_bus(card, &vitals);
    read_modes(card, &vitals);
    read_memory_errors(card, &vitals);
  }
  return vitals;
}

Result<Vitals> Nvml::vitals(const std::string& uuid) const { return look(uuid, true); }
Result<Vitals> Nvml::pulse(const std::string& uuid) const { return look(uuid, false); }

Driver Nvml::driver() const {
  Driver driver;
  char text[nvml::kVersionBytes] = {};
  const auto version =
      reinterpret_cast<Return (*)(char*, unsigned)>(dlsym(functions_->library, "nvmlSystemGetDriverVersion"));
  if (version != nullptr && version(text, sizeof text) == nvml::kSuccess) driver.version = text;
  const auto cuda = reinterpret_cast<Return (*)(int*)>(dlsym(functions_->library, "nvmlSystemGetCudaDriverVersion_v2"));
  int number = 0;
  if (cuda != nullptr && cuda(&number) == nvml::kSuccess) driver.cuda_version = number;
  return driver;
}

Status Nvml::clear_ecc(const std::string& uuid) const {
  const Result<DeviceHandle> handle = functions_->find(uuid);
  if (!handle.ok()) return handle.status();
  const auto clear =
      reinterpret_cast<Return (*)(DeviceHandle, int)>(dlsym(functions_->library, "nvmlDeviceClearEccErrorCounts"));
  const Return code = clear == nullptr ? nvml::kFunctionNotFound : clear(*handle, nvml::kEccVolatile);
  return code == nvml::kSuccess ? Status() : functions_->failed("its ECC counts", uuid, code);
}

Status Nvml::lock_clocks(const std::string& uuid, unsigned mhz) const {
  const Result<DeviceHandle> handle = functions_->find(uuid);
  if (!handle.ok()) return handle.status();
  const auto lock = reinterpret_cast<Return (*)(DeviceHandle, unsigned int, unsigned int)>(
      dlsym(functions_->library, "nvmlDeviceSetGpuLockedClocks"));
  const Return code = lock == nullptr ? nvml::kFunctionNotFound : lock(*handle, 0, mhz);
  return code == nvml::kSuccess ? Status() : functions_->failed("its clocks", uuid, code);
}

Status Nvml::unlock_clocks(const std::string& uuid) const {
  const Result<DeviceHandle> handle = functions_->find(uuid);
  if (!handle.ok()) return handle.status();
  const auto unlock =
      reinterpret_cast<Return (*)(DeviceHandle)>(dlsym(functions_->library, "nvmlDeviceResetGpuLockedClocks"));
  const Return code = unlock == nullptr ? nvml::kFunctionNotFound : unlock(*handle);
  return code == nvml::kSuccess ? Status() : functions_->failed("its clocks", uuid, code);
}

std::vector<std::string> throttle::reasons(std::uint64_t bits) {
  static constexpr struct {
    std::uint64_t bit;
    const char* text;
  } kAll[] = {{kPowerCap, "power cap"},     {kHeat, "heat (driver)"},          {kHardwareHeat, "heat (hardware)"},
              {kPowerBrake, "power brake"}, {kHardware, "hardware slowdown"},  {kUserClocks, "clocks set by hand"},
              {kSyncBoost, "sync boost"},   {kDisplayClocks, "display clocks"}};
  std::vector<std::string> found;
  for (const auto& [bit, text] : kAll) {
    if ((bits & bit) != 0) found.emplace_back(text);
    bits &= ~bit;
  }
  bits &= ~kIdle;
  char unknown[32];
  std::snprintf(unknown, sizeof unknown, "reason 0x%llx", static_cast<unsigned long long>(bits));
  if (bits != 0) found.emplace_back(unknown);
  return found;
}

}  // namespace sluice::health
