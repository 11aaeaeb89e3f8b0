// An NVML for tests that plays what a file says: $SLUICE_FAKE_NVML, else three_cards.toml (series/README.md has the
// format). $SLUICE_FAKE_NVML_STEP is the number of the sample, or an absolute path of a file with it. What it was asked
// to change about clocks it adds to the file $SLUICE_FAKE_NVML_CLOCKS; without that it refuses.
#include <toml++/toml.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "nvml_abi.h"

namespace {

using namespace sluice::health::nvml;

toml::table g_file;
long g_step = 0;
std::set<unsigned long> g_cleared;  // cards whose volatile ECC counts were

Return code_named(const std::string& name) {
  static const std::map<std::string, Return> codes = {
      {"NOT_SUPPORTED", kNotSupported}, {"NO_PERMISSION", kNoPermission},
      {"NOT_FOUND", kNotFound},         {"DRIVER_NOT_LOADED", 9},
      {"GPU_IS_LOST", kGpuLost},        {"LIB_RM_VERSION_MISMATCH", kLibraryMismatch}};
  const auto found = codes.find(name);
  return found == codes.end() ? kUnknown : found->second;
}

void read_step() {
  const char* text = std::getenv("SLUICE_FAKE_NVML_STEP");
  g_step = 0;
  if (text == nullptr) return;
  if (*text == '/') {
    std::ifstream(text) >> g_step;
  } else {
    g_step = std::atol(text);
  }
}

DeviceHandle handle_of(unsigned long index) { return reinterpret_cast<DeviceHandle>(index + 1); }
unsigned long index_of(DeviceHandle handle) { return reinterpret_cast<unsigned long>(handle) - 1; }

const toml::array* cards() { return g_file["card"].as_array(); }
const toml::table* card(unsigned long index) {
  const toml::array* all = cards();
  return all == nullptr || index >= all->size() ? nullptr : (*all)[index].as_table();
}

// What stands under `key`, of a series what stands there for this step; null where nothing does.
const toml::node* node(const toml::table* of, const std::string& key) {
  const toml::node* found = of == nullptr ? nullptr : of->get(key);
  if (found == nullptr || !found->is_array()) return found;
  const toml::array& series = *found->as_array();
  if (series.empty()) return nullptr;
  const auto last = static_cast<long>(series.size()) - 1;
  return &series[static_cast<std::size_t>(g_step < last ? g_step : last)];
}

// The number under `key`, or the error that stands in its place. Of a lost card every call says so.
template <class Out>
Return number(DeviceHandle device, const std::string& key, Out* out) {
  const toml::table* of = card(index_of(device));
  if (const toml::node* lost = node(of, "lost"); lost != nullptr && lost->value_or(false)) return kGpuLost;
  const toml::node* found = node(of, key);
  if (found == nullptr) return kNotSupported;
  if (found->is_string()) return code_named(found->value_or(std::string()));
  *out = static_cast<Out>(found->value_or(std::int64_t{0}));
  return kSuccess;
}

Return text_of(const std::string& text, char* out, unsigned int bytes) {
  if (text.size() >= bytes) return kInsufficientSize;
  std::strcpy(out, text.c_str());
  return kSuccess;
}

Return text_of(DeviceHandle device, const char* key, char* out, unsigned int bytes) {
  const toml::table* of = card(index_of(device));
  return of == nullptr ? kInvalidArgument : text_of((*of)[key].value_or(std::string()), out, bytes);
}

Return list(DeviceHandle device, const char* key, unsigned int* count, ProcessInfo* out) {
  unsigned int made_up = 0;
  if (const Return code = number(device, std::string(key) + "/made_up", &made_up); code == kGpuLost) return code;
  const toml::array* pairs = (*card(index_of(device)))[key].as_array();
  if (pairs == nullptr && made_up == 0) return kNotSupported;
  const unsigned int room = *count;
  *count = pairs == nullptr ? made_up : static_cast<unsigned int>(pairs->size());
  if (room < *count) return kInsufficientSize;
  for (unsigned int i = 0; i < *count; ++i) {
    unsigned long long pid = 1000 + i, bytes = i == 0 ? kNotAvailable : i;
    if (pairs != nullptr) {
      const toml::array& pair = *(*pairs)[i].as_array();
      pid = static_cast<unsigned long long>(pair[0].value_or(std::int64_t{0}));
      bytes = pair.size() < 2 ? kNotAvailable : static_cast<unsigned long long>(pair[1].value_or(std::int64_t{0}));
    }
    out[i] = {static_cast<unsigned int>(pid), bytes, 0, 0};
  }
  return kSuccess;
}

Return note_clocks(DeviceHandle device, const std::string& text) {
  const char* path = std::getenv("SLUICE_FAKE_NVML_CLOCKS");
  if (path == nullptr) return kNoPermission;
  std::ofstream(path, std::ios::app) << text << " " << index_of(device) << std::endl;
  return kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
  const char* path = std::getenv("SLUICE_FAKE_NVML");
  toml::parse_result parsed = toml::parse_file(path == nullptr ? FAKE_NVML_DEFAULT : path);
  g_file = std::move(parsed);
  g_cleared.clear();
  read_step();
  const toml::node* init = node(&g_file, "init");
  return init == nullptr ? kSuccess : code_named(init->value_or(std::string()));
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  switch (code) {
    case kNoPermission:
      return "Insufficient Permissions";
    case kNotSupported:
      return "Not Supported";
    case kGpuLost:
      return "GPU is lost";
    case kLibraryMismatch:
      return "Driver/library version mismatch";
    default:
      return "the fake's error";
  }
}
int nvmlSystemGetDriverVersion(char* out, unsigned int bytes) {
  return g_file.contains("driver") ? text_of(g_file["driver"].value_or(std::string()), out, bytes) : kUnknown;
}
int nvmlSystemGetCudaDriverVersion_v2(int* out) {
  *out = static_cast<int>(g_file["cuda"].value_or(std::int64_t{0}));
  return *out == 0 ? kUnknown : kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = cards() == nullptr ? 0 : static_cast<unsigned int>(cards()->size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, DeviceHandle* out) {
  read_step();
  const toml::table* of = card(index);
  if (of == nullptr) return kInvalidArgument;
  if (!of->contains("UUID")) return kGpuLost;  // lost before it was ever seen
  *out = handle_of(index);
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, DeviceHandle* out) {
  for (unsigned int i = 0; card(i) != nullptr; ++i) {
    if ((*card(i))["UUID"].value_or(std::string()) != uuid) continue;
    const Return code = nvmlDeviceGetHandleByIndex_v2(i, out);
    const toml::node* gone = node(card(i), "gone");
    return gone != nullptr && gone->value_or(false) ? kNotFound : code;
  }
  return kNotFound;
}
int nvmlDeviceGetUUID(DeviceHandle device, char* out, unsigned int bytes) {
  return text_of(device, "UUID", out, bytes);
}
int nvmlDeviceGetName(DeviceHandle device, char* out, unsigned int bytes) {
  return text_of(device, "Name", out, bytes);
}
int nvmlDeviceSetGpuLockedClocks(DeviceHandle device, unsigned int low, unsigned int high) {
  return note_clocks(device, "lock " + std::to_string(low) + " " + std::to_string(high));
}
int nvmlDeviceResetGpuLockedClocks(DeviceHandle device) { return note_clocks(device, "unlock"); }
int nvmlDeviceGetPciInfo_v3(DeviceHandle device, PciInfo* out) {
  *out = {};
  return number(device, "PciInfo/bus", &out->bus);
}
int nvmlDeviceGetMemoryInfo(DeviceHandle device, Memory* out) {
  const Return code = number(device, "MemoryInfo/total", &out->total);
  if (code != kSuccess) return code;
  number(device, "MemoryInfo/used", &out->used);
  out->free = out->total - out->used;
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(DeviceHandle device, Utilization* out) {
  return number(device, "UtilizationRates", &out->gpu);
}
int nvmlDeviceGetComputeRunningProcesses_v2(DeviceHandle device, unsigned int* count, ProcessInfo* out) {
  return list(device, "ComputeRunningProcesses", count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(DeviceHandle device, unsigned int* count, ProcessInfo* out) {
  return list(device, "GraphicsRunningProcesses", count, out);
}
int nvmlDeviceGetTopologyCommonAncestor(DeviceHandle one, DeviceHandle other, int* out) {
  *out = one == other ? 0 : 30;
  return kSuccess;
}

#define FAKE_UNSIGNED(name) \
  int nvmlDeviceGet##name(DeviceHandle device, unsigned int* out) { return number(device, #name, out); }
FAKE_UNSIGNED(CurrPcieLinkGeneration)
FAKE_UNSIGNED(CurrPcieLinkWidth)
FAKE_UNSIGNED(MaxPcieLinkGeneration)
FAKE_UNSIGNED(MaxPcieLinkWidth)
FAKE_UNSIGNED(GpuMaxPcieLinkGeneration)
FAKE_UNSIGNED(PcieReplayCounter)
FAKE_UNSIGNED(PersistenceMode)
FAKE_UNSIGNED(ComputeMode)
FAKE_UNSIGNED(PerformanceState)
FAKE_UNSIGNED(PowerUsage)
FAKE_UNSIGNED(PowerManagementLimit)
FAKE_UNSIGNED(EnforcedPowerLimit)
FAKE_UNSIGNED(PowerManagementDefaultLimit)
FAKE_UNSIGNED(RetiredPagesPendingStatus)

// As a driver before 535 names it.
int nvmlDeviceGetCurrentClocksThrottleReasons(DeviceHandle device, unsigned long long* out) {
  return number(device, "CurrentClocksEventReasons", out);
}
int nvmlDeviceGetTemperature(DeviceHandle device, int, unsigned int* out) { return number(device, "Temperature", out); }
int nvmlDeviceGetTemperatureThreshold(DeviceHandle device, int which, unsigned int* out) {
  const char* name = which == kThresholdShutdown ? "shutdown" : which == kThresholdSlowdown ? "slowdown" : "gpu_max";
  return number(device, std::string("TemperatureThreshold/") + name, out);
}
int nvmlDeviceGetClockInfo(DeviceHandle device, int which, unsigned int* out) {
  return number(device, which == kClockSm ? "ClockInfo/sm" : "ClockInfo/memory", out);
}
int nvmlDeviceGetMaxClockInfo(DeviceHandle device, int which, unsigned int* out) {
  return number(device, which == kClockSm ? "MaxClockInfo/sm" : "MaxClockInfo/memory", out);
}
int nvmlDeviceGetViolationStatus(DeviceHandle device, int policy, ViolationTime* out) {
  const char* name = policy == kPolicyPower     ? "power"
                     : policy == kPolicyThermal ? "thermal"
                     : policy == kPolicyBoard   ? "board"
                                                : "reliability";
  return number(device, std::string("ViolationStatus/") + name, &out->violation_ns);
}
int nvmlDeviceGetMigMode(DeviceHandle device, unsigned int* now, unsigned int* pending) {
  const Return code = number(device, "MigMode", now);
  *pending = *now;
  return code;
}
int nvmlDeviceGetEccMode(DeviceHandle device, int* now, int* pending) {
  const Return code = number(device, "EccMode", now);
  *pending = *now;
  if (code == kSuccess) number(device, "EccMode/pending", pending);
  return code;
}
int nvmlDeviceGetTotalEccErrors(DeviceHandle device, int type, int counter, unsigned long long* out) {
  const std::string since = counter == kEccVolatile ? "/volatile" : "/aggregate";
  const Return code =
      number(device, "TotalEccErrors" + since + (type == kEccCorrected ? "/corrected" : "/uncorrected"), out);
  if (code == kSuccess && counter == kEccVolatile && g_cleared.count(index_of(device)) != 0) *out = 0;
  return code;
}
int nvmlDeviceClearEccErrorCounts(DeviceHandle device, int) {
  int ignored = 0;
  const Return code = number(device, "ClearEccErrorCounts", &ignored);
  if (code == kSuccess) g_cleared.insert(index_of(device));
  return code;
}
int nvmlDeviceGetRemappedRows(DeviceHandle device, unsigned int* corrected, unsigned int* uncorrected,
                              unsigned int* pending, unsigned int* failed) {
  const Return code = number(device, "RemappedRows/corrected", corrected);
  if (code != kSuccess) return code;
  *uncorrected = *pending = *failed = 0;
  number(device, "RemappedRows/uncorrected", uncorrected);
  number(device, "RemappedRows/pending", pending);
  number(device, "RemappedRows/failed", failed);
  return kSuccess;
}
int nvmlDeviceGetRetiredPages(DeviceHandle device, int cause, unsigned int* count, unsigned long long*) {
  return number(device, cause == kRetiredSingleBit ? "RetiredPages/single_bit" : "RetiredPages/double_bit", count);
}

}  // extern "C"
#pragma GCC visibility pop
