// The GPUs' state as NVML tells it: memory, load, who uses them, how far apart they are.
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

// Who may have a context on a GPU. The values are NVML's.
enum class ComputeMode : int { kDefault = 0, kExclusiveThread = 1, kProhibited = 2, kExclusiveProcess = 3 };

struct Device {
  int index = 0;     // NVML's, which is the order of PCI addresses
  std::string uuid;  // "GPU-xxxxxxxx-..."; "" when the card does not answer
  std::string name;
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;
  std::optional<double> utilization_ratio;  // of the last sample period in which any kernel ran
  std::optional<ComputeMode> compute_mode;
  std::optional<bool> mig;  // divided into instances
};

// A process with a compute context on a GPU.
struct Process {
  pid_t pid = 0;  // in the pid namespace of the driver, which inside a container may not be the caller's
  std::optional<std::uint64_t> memory_bytes;
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

  // Errors: kNotFound; kUnimplemented where unsupported.
  Result<Topology> topology(const std::string& uuid, const std::string& other_uuid) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  void describe(void* handle, Device* device) const;

  std::unique_ptr<Functions> functions_;
};

}  // namespace sluice::health
