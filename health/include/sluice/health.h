// The GPUs' state as NVML tells it: memory, load, who uses them, how far apart they are, whether they are well; and the
// guard, which decides what to do about a card that is not.
//
// NVML is opened at run time ($SLUICE_NVML, else libnvidia-ml.so.1) and declared by us, so that one build runs where
// there is none. What a card or driver does not support is nullopt, never 0. Thread safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::health {

struct Device {
  int index = 0;     // NVML's, which is the order of PCI addresses
  std::string uuid;  // "GPU-xxxxxxxx-..."; "" when the card does not answer
  std::string name;
  std::string error;  // why the card does not answer, in NVML's words; "" when it does
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;
  std::optional<double> utilization_ratio;  // of the last sample period in which any kernel ran
};

// A process with a compute context on a GPU.
struct Process {
  pid_t pid = 0;  // in the pid namespace of the driver, which inside a container may not be the caller's
  std::optional<std::uint64_t> memory_bytes;
};

// The driver behind NVML.
struct Driver {
  std::string version;              // nvmlSystemGetDriverVersion, such as "580.95.05"; "" when it does not tell
  std::optional<int> cuda_version;  // nvmlSystemGetCudaDriverVersion_v2: 1000 x major + 10 x minor
};

// Bits of nvmlDeviceGetCurrentClocksEventReasons (before driver 535: ...ThrottleReasons).
namespace throttle {
inline constexpr std::uint64_t kIdle = 0x1;             // GpuIdle: nothing to do
inline constexpr std::uint64_t kUserClocks = 0x2;       // ApplicationsClocksSetting: somebody set the clocks
inline constexpr std::uint64_t kPowerCap = 0x4;         // SwPowerCap: the driver holds the card at its power limit
inline constexpr std::uint64_t kHardware = 0x8;         // HwSlowdown: too hot, or short of power, says the hardware
inline constexpr std::uint64_t kSyncBoost = 0x10;       // SyncBoost: follows another card's clocks
inline constexpr std::uint64_t kHeat = 0x20;            // SwThermalSlowdown: the driver cools the card
inline constexpr std::uint64_t kHardwareHeat = 0x40;    // HwThermalSlowdown: the hardware does
inline constexpr std::uint64_t kPowerBrake = 0x80;      // HwPowerBrakeSlowdown: the power supply asks for it
inline constexpr std::uint64_t kDisplayClocks = 0x100;  // DisplayClockSetting
inline constexpr std::uint64_t kAnyHeat = kHeat | kHardwareHeat;
inline constexpr std::uint64_t kFaults = kHardware | kHardwareHeat | kPowerBrake;

// Each reason in a few words, such as "power cap"; an idle GPU is not throttled and gives nothing.
std::vector<std::string> reasons(std::uint64_t bits);
}  // namespace throttle

// Who may have a context on a GPU. The values are NVML's.
enum class ComputeMode : int { kDefault = 0, kExclusiveThread = 1, kProhibited = 2, kExclusiveProcess = 3 };

struct EccCounts {
  std::optional<std::uint64_t> corrected, uncorrected;  // nvmlDeviceGetTotalEccErrors
};

// How one card is now. Behind each field the call that it is from, less its "nvmlDeviceGet".
struct Vitals {
  bool lost = false;                // a call said NVML_ERROR_GPU_IS_LOST: the card has fallen off the bus
  std::vector<std::string> denied;  // calls that said NVML_ERROR_NO_PERMISSION

  std::string pci;  // PciInfo_v3, as /sys/bus/pci/devices has it ("0000:01:00.0"); "" when it does not tell
  std::optional<unsigned> pcie_generation, pcie_width;          // CurrPcieLinkGeneration, CurrPcieLinkWidth (lanes)
  std::optional<unsigned> pcie_generation_max, pcie_width_max;  // MaxPcieLink...: of card and slot together
  std::optional<unsigned> pcie_generation_card;                 // GpuMaxPcieLinkGeneration: of the card alone
  std::optional<unsigned> pcie_replays;                         // PcieReplayCounter: packets sent again

  std::optional<bool> persistence;          // PersistenceMode
  std::optional<ComputeMode> compute_mode;  // ComputeMode
  std::optional<bool> mig;                  // MigMode

  std::optional<unsigned> performance_state;                       // PerformanceState: 0 is the fastest
  std::optional<unsigned> sm_clock_mhz, sm_clock_max_mhz;          // ClockInfo, MaxClockInfo
  std::optional<unsigned> memory_clock_mhz, memory_clock_max_mhz;  // likewise
  std::optional<std::uint64_t> throttle;  // CurrentClocksEventReasons: bits of namespace throttle
  // ViolationStatus: time since the driver was loaded that the clocks were held down for this reason.
  std::optional<std::uint64_t> power_violation_ns, thermal_violation_ns, board_violation_ns, reliability_violation_ns;

  std::optional<unsigned> temperature_c;           // Temperature, of the GPU itself
  std::optional<unsigned> slowdown_c, shutdown_c;  // TemperatureThreshold
  std::optional<unsigned> operating_max_c;         // TemperatureThreshold, GPU_MAX: above it the driver cools
  std::optional<unsigned> power_mw;                // PowerUsage
  std::optional<unsigned> power_limit_mw;          // EnforcedPowerLimit, else PowerManagementLimit
  std::optional<unsigned> power_default_mw;        // PowerManagementDefaultLimit

  std::optional<bool> ecc, ecc_pending;                      // EccMode: now, and after the next reset
  EccCounts ecc_volatile, ecc_aggregate;                     // since the driver was loaded, and since the card was made
  std::optional<unsigned> rows_corrected, rows_uncorrected;  // RemappedRows: because of such errors
  std::optional<bool> rows_pending, rows_failed;             // RemappedRows: after the next reset; could not be
  std::optional<unsigned> pages_single_bit, pages_double_bit;  // RetiredPages, of cards before Ampere
  std::optional<bool> pages_pending;                           // RetiredPagesPendingStatus
};

// What the path between two GPUs crosses; larger is further. The values are NVML's.
enum class Topology : int {
  kSameBoard = 0,
  kSingleSwitch = 10,
  kSeveralSwitches = 20,
  kHostBridge = 30,
  kNumaNode = 40,
  kSystem = 50,
};

class Nvml {
 public:
  // Opens `library`, or $SLUICE_NVML, or libnvidia-ml.so.1, and initialises it, which may take a second on a cold
  // driver. Errors: kUnavailable when there is no library or no driver behind it.
  static Result<std::shared_ptr<Nvml>> open(const char* library = nullptr);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool simulated() const;  // it is the emulator's
  // Absolute path of the library that was opened; "" where the dynamic linker does not tell.
  std::string library() const;

  // All GPUs, in NVML's order. A card that fails keeps its place, with what it did answer.
  // Errors: kUnavailable when NVML cannot even count them.
  Result<std::vector<Device>> devices() const;

  // One GPU, with `index` -1. Errors: kNotFound.
  Result<Device> device(const std::string& uuid) const;

  // Compute processes on the GPU with this UUID, of all users. Errors: kNotFound; kUnimplemented where unsupported.
  Result<std::vector<Process>> compute_processes(const std::string& uuid) const;

  // Likewise the processes that draw with it: a desktop, above all.
  Result<std::vector<Process>> graphics_processes(const std::string& uuid) const;

  Driver driver() const;

  // Everything about the health of one GPU: some thirty calls, milliseconds. Each that fails leaves its fields nullopt,
  // and the rest is still told. Errors: kNotFound; kUnavailable for a card that was lost before it was ever seen.
  Result<Vitals> vitals(const std::string& uuid) const;
  // Only what the guard looks at: `lost`, temperatures, throttle, power, volatile ECC counts; under ten calls.
  Result<Vitals> pulse(const std::string& uuid) const;

  // Sets the volatile ECC counts to 0. Errors: kNotFound; kPermissionDenied for all but root; kUnimplemented for a card
  // without ECC; kUnavailable for a lost one; kInternal.
  Status clear_ecc(const std::string& uuid) const;

  // Keeps the SM clock at `mhz` or below until unlock_clocks() or a reset of the driver; the driver lets it stand when
  // this process ends. Errors: kNotFound; kPermissionDenied for all but root; kUnimplemented; kUnavailable; kInternal.
  Status lock_clocks(const std::string& uuid, unsigned mhz) const;
  Status unlock_clocks(const std::string& uuid) const;

  // Errors: kNotFound; kUnimplemented where unsupported.
  Result<Topology> topology(const std::string& uuid, const std::string& other_uuid) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  void describe(void* handle, Device* device) const;
  Result<Vitals> look(const std::string& uuid, bool all) const;

  std::unique_ptr<Functions> functions_;
};

// ---- the guard ------------------------------------------------------------------------------------------------

// What to do about a card that is not well: a pure function of the samples so far (Nvml::pulse, about one a second) and
// the configuration. It acts on the second bad sample in a row, one step at a time, and takes a step back only after
// many good ones, more each time that the step turns out to have been needed: so it cannot swing. A sample that does
// not tell changes nothing.
namespace guard {

struct Config {
  unsigned margin_c = 3;      // hot from so many degrees below the hardware's slowdown on
  unsigned relief_c = 8;      // cool again only so many below that
  unsigned act_after = 2;     // bad samples in a row before it acts
  unsigned step_after = 10;   // bad samples in a row before the next step
  unsigned relax_after = 30;  // good samples in a row before a step back
  unsigned relax_most = 480;  // what that may grow to
  unsigned strikes = 3;       // samples with new uncorrected memory errors that a card may have
  bool allow_clock_control = false;
  unsigned clock_ratio_percent = 70;  // of the highest clock, that it locks then
};

enum class ActionKind {
  kRecord,      // write `text` down
  kHoldLow,     // give the jobs of low priority at most `ratio` of the GPU's time; 1: no cap any more
  kBatchHint,   // tell the jobs to work with `ratio` of their batch; 1: as they like
  kLockClocks,  // lock the clocks at `ratio` of the highest; 1: unlock them. Only with allow_clock_control
  kTakeOut,     // start no job on this card any more
};

struct Action {
  ActionKind kind = ActionKind::kRecord;
  double ratio = 1;
  std::string text;      // what happened, for kRecord and kTakeOut
  bool routine = false;  // a card at work does that: the power cap, clocks that somebody set
};

// A condition that counts once it was there for some samples, and ends once it was gone for some.
struct Debounced {
  bool on = false;
  unsigned against = 0;  // samples in a row that say otherwise
};

// What is remembered between samples; a value. A card begins with an empty one.
struct State {
  int level = 0;               // 0: nothing is done; up to kLevels
  unsigned hot = 0, cool = 0;  // samples in a row
  unsigned relax_needed = 0;   // good samples before the next step back; 0: Config::relax_after
  unsigned since_relaxed = 0;  // samples since the last step back
  bool relaxed = false;        // there was one
  Debounced reasons[9];        // by bit of Vitals::throttle
  std::optional<std::uint64_t> uncorrected, corrected;  // volatile ECC counts last seen
  unsigned strikes = 0;
  unsigned lost = 0;  // samples in a row
  bool out = false;   // taken out; for good
};
inline constexpr int kLevels = 3;

struct Step {
  State state;
  std::vector<Action> actions;
};
Step step(const Config& config, const State& before, const Vitals& sample);

// The actions of a whole history, one list a sample.
std::vector<std::vector<Action>> replay(const Config& config, const std::vector<Vitals>& history);

// Reasons that count as being there now, in words.
std::vector<std::string> throttled(const State& state);

}  // namespace guard

}  // namespace sluice::health
