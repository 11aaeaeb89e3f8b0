// What card the emulator plays, and how fast its clock runs. Read once a process; the values never change after.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/base/status.h"

namespace sluice::emulator {

// A card. Durations are emulated nanoseconds, rates are per emulated second; each value's source stands in its file.
struct Profile {
  std::string name;
  int compute_capability_major = 0, compute_capability_minor = 0;
  int sm_count = 0, max_threads_per_sm = 0, max_blocks_per_sm = 0;
  std::uint64_t shared_bytes_per_sm = 0, shared_bytes_per_block_optin = 0;
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  std::uint64_t memory_bytes = 0, l2_bytes = 0;
  double memory_bandwidth = 0, flops_fp32 = 0, pcie_bandwidth = 0;
  bool ecc = false;
  std::uint64_t copy_latency_ns = 0;    // of any copy, before its bytes move
  std::uint64_t time_slice_ns = 0;      // how long a context keeps the SMs when another wants them
  std::uint64_t context_switch_ns = 0;  // cost of giving the SMs to another context
  std::uint64_t launch_floor_ns = 0;    // the shortest kernel
  std::uint64_t graph_node_ns = 0;      // the same for a kernel inside of a graph
  std::uint64_t gate_open_ns = 0;       // from a CPU store until a parked stream goes on
  std::uint64_t gate_wait_ns = 0;       // GPU time of a stream wait whose condition holds already
};

// Parses the flat subset of TOML that the files in profiles/ use. Errors: kInvalidArgument with `source` and the line.
Result<Profile> parse_profile(std::string_view text, std::string_view source);

struct Settings {
  std::string profile_key;  // file-name safe: "rtx2060"
  Profile profile;
  double scale = 1;  // real nanoseconds an emulated one takes
  int gpus = 1;
  std::uint64_t real(double emulated_ns) const { return static_cast<std::uint64_t>(emulated_ns * scale); }
};

// The most cards, whatever SLUICE_EMU_GPUS says.
inline constexpr int kMaxDevices = 16;

// Reads SLUICE_EMU_PROFILE (a built-in name or a path), SLUICE_EMU_SCALE and SLUICE_EMU_GPUS.
Result<Settings> read_settings();

// The same, once a process; what is wrong is said once on standard error and null returned from then on.
const Settings* settings();

// The stable UUID of emulated card `index`, 16 bytes, and its text "GPU-xxxxxxxx-...".
void device_uuid(const Settings& settings, int index, unsigned char out[16]);
std::string device_uuid_text(const Settings& settings, int index);

// One line on standard error, marked as the emulator's. `format` as printf takes it.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

}  // namespace sluice::emulator
