#include "profile.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>

#include "embedded.h"

namespace sluice::emulator {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t' || s.front() == '\r')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

Result<double> number_of(const char* variable, const char* text, double low, double high) {
  char* end = nullptr;
  double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= low && value <= high)) {
    return Status::error(Code::kInvalidArgument, "%s is '%s'; it takes a number from %g to %g", variable, text, low,
                         high);
  }
  return value;
}

std::uint64_t fnv1a(std::string_view text, std::uint64_t seed) {
  std::uint64_t h = 0xcbf29ce484222325ull ^ seed;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  // A last mix, so that the seed reaches the low bits of short names too.
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  return h ^ h >> 33;
}

}  // namespace

Result<Profile> parse_profile(std::string_view text, std::string_view source) {
  Profile profile;
  using Setter = std::function<void(double)>;
  auto into = [](auto& field) -> Setter {
    return [&field](double v) { field = static_cast<std::remove_reference_t<decltype(field)>>(v); };
  };
  std::map<std::string_view, Setter> numbers = {
      {"compute_capability_major", into(profile.compute_capability_major)},
      {"compute_capability_minor", into(profile.compute_capability_minor)},
      {"sm_count", into(profile.sm_count)},
      {"max_threads_per_sm", into(profile.max_threads_per_sm)},
      {"max_blocks_per_sm", into(profile.max_blocks_per_sm)},
      {"shared_bytes_per_sm", into(profile.shared_bytes_per_sm)},
      {"shared_bytes_per_block_optin", into(profile.shared_bytes_per_block_optin)},
      {"clock_khz", into(profile.clock_khz)},
      {"memory_clock_khz", into(profile.memory_clock_khz)},
      {"memory_bus_bits", into(profile.memory_bus_bits)},
      {"memory_bytes", into(profile.memory_bytes)},
      {"memory_bandwidth", into(profile.memory_bandwidth)},
      {"l2_bytes", into(profile.l2_bytes)},
      {"flops_fp32", into(profile.flops_fp32)},
      {"pcie_bandwidth", into(profile.pcie_bandwidth)},
      {"copy_latency_ns", into(profile.copy_latency_ns)},
      {"time_slice_ns", into(profile.time_slice_ns)},
      {"context_switch_ns", into(profile.context_switch_ns)},
      {"launch_floor_ns", into(profile.launch_floor_ns)},
      {"graph_node_ns", into(profile.graph_node_ns)},
      {"gate_open_ns", into(profile.gate_open_ns)},
      {"gate_wait_ns", into(profile.gate_wait_ns)},
  };
  const std::string where(source);
  bool has_ecc = false;
  int line_number = 0;
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++line_number;
    std::size_t comment = line.find('#');
    line = trim(line.substr(0, comment));
    if (line.empty()) continue;
    std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return Status::error(Code::kInvalidArgument, "%s:%d: expected `key = value`", where.c_str(), line_number);
    }
    const std::string key(trim(line.substr(0, equals)));
    const std::string value(trim(line.substr(equals + 1)));
    if (key == "name" && value.size() > 2 && value.front() == '"' && value.back() == '"') {
      profile.name = value.substr(1, value.size() - 2);
    } else if (key == "ecc" && (value == "true" || value == "false")) {
      profile.ecc = value == "true";
      has_ecc = true;
    } else if (auto at = numbers.find(key); at != numbers.end()) {
      Result<double> number = number_of(key.c_str(), value.c_str(), 0, 1e18);
      if (!number.ok()) {
        return Status::error(Code::kInvalidArgument, "%s:%d: %s", where.c_str(), line_number,
                             number.status().message());
      }
      at->second(*number);
      numbers.erase(at);
    } else {
      return Status::error(Code::kInvalidArgument, "%s:%d: `%s = %s` is unknown, given twice or of the wrong type",
                           where.c_str(), line_number, key.c_str(), value.c_str());
    }
  }
  if (!numbers.empty() || profile.name.empty() || !has_ecc) {
    const std::string missing(!numbers.empty() ? numbers.begin()->first : profile.name.empty() ? "name" : "ecc");
    return Status::error(Code::kInvalidArgument, "%s: `%s` is missing", where.c_str(), missing.c_str());
  }
  // Divisors and limits that no card has as zero.
  if (profile.sm_count == 0 || profile.max_threads_per_sm == 0 || profile.memory_bytes == 0 ||
      profile.memory_bandwidth <= 0 || profile.flops_fp32 <= 0 || profile.pcie_bandwidth <= 0 ||
      profile.time_slice_ns == 0) {
    return Status::error(Code::kInvalidArgument, "%s: counts, sizes, rates and time_slice_ns must be greater than 0",
                         where.c_str());
  }
  return profile;
}

Result<Settings> read_settings() {
  Settings out;
  if (const char* scale = std::getenv("SLUICE_EMU_SCALE"); scale != nullptr && *scale != '\0') {
    Result<double> number = number_of("SLUICE_EMU_SCALE", scale, 0.01, 10000);
    if (!number.ok()) return number.status();
    out.scale = *number;
  }
  if (const char* gpus = std::getenv("SLUICE_EMU_GPUS"); gpus != nullptr && *gpus != '\0') {
    Result<double> number = number_of("SLUICE_EMU_GPUS", gpus, 0, kMaxDevices);
    if (!number.ok()) return number.status();
    out.gpus = static_cast<int>(*number);
  }
  const char* wanted = std::getenv("SLUICE_EMU_PROFILE");
  const std::string key = wanted != nullptr && *wanted != '\0' ? wanted : "rtx2060";
  std::string text, known;
  if (key.find('/') != std::string::npos) {
    std::ifstream file(key);
    if (!file) {
      return Status::error(Code::kNotFound, "SLUICE_EMU_PROFILE: the file %s cannot be read", key.c_str());
    }
    text.assign(std::istreambuf_iterator<char>(file), {});
    out.profile_key = "file-" + std::to_string(fnv1a(text, 0));
  }
  for (int i = 0; i < kEmbeddedProfileCount && out.profile_key.empty(); ++i) {
    known += std::string(i == 0 ? "" : ", ") + kEmbeddedProfiles[i].key;
    if (key == kEmbeddedProfiles[i].key) {
      text = kEmbeddedProfiles[i].text;
      out.profile_key = key;
    }
  }
  if (out.profile_key.empty()) {
    return Status::error(Code::kNotFound, "SLUICE_EMU_PROFILE is '%s'; known are %s, or a path with a /", key.c_str(),
                         known.c_str());
  }
  Result<Profile> profile = parse_profile(text, key);
  if (!profile.ok()) return profile.status();
  out.profile = *profile;
  return out;
}

const Settings* settings() {
  // Leaked on purpose: executor threads use it while the process's destructors run.
  static const Settings* const once = []() -> const Settings* {
    Result<Settings> read = read_settings();
    if (read.ok()) return new Settings(*read);
    say("%s", read.status().message());
    return nullptr;
  }();
  return once;
}

void device_uuid(const Settings& settings, int index, unsigned char out[16]) {
  for (int half = 0; half < 2; ++half) {
    std::uint64_t h = fnv1a(settings.profile.name, static_cast<std::uint64_t>(index) * 2 + half + 1);
    for (int i = 0; i < 8; ++i) out[half * 8 + i] = static_cast<unsigned char>(h >> (8 * i));
  }
}

std::string device_uuid_text(const Settings& settings, int index) {
  unsigned char b[16];
  device_uuid(settings, index, b);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", b[i]);
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

void say(const char* format, ...) {
  char line[512];
  int at = std::snprintf(line, sizeof line, "sluice emulator: ");
  va_list args;
  va_start(args, format);
  int more = std::vsnprintf(line + at, sizeof line - static_cast<std::size_t>(at) - 1, format, args);
  va_end(args);
  std::size_t length =
      std::min(sizeof line - 2, static_cast<std::size_t>(at) + static_cast<std::size_t>(std::max(more, 0)));
  line[length] = '\n';
  std::fwrite(line, 1, length + 1, stderr);
}

}  // namespace sluice::emulator
