// What the user asks `sluice run` for: one command with its priority, share and GPUs, however it was written (options
// or a job file). Pure parsing; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::cli {

inline constexpr int kLowestPriority = -1000;
inline constexpr int kHighestPriority = 1000;
inline constexpr unsigned kLargestShare = 1000;

struct GpuRequest {
  enum class Kind {
    kUnsaid,  // what CUDA_VISIBLE_DEVICES says, else auto
    kAuto,    // `count` GPUs, which ones is up to us
    kList,    // exactly those named
  };
  Kind kind = Kind::kUnsaid;
  int count = 1;
  std::vector<std::string> names;  // indices as NVML counts, or UUIDs; not yet looked up
};

// How much of each of its GPUs a job may allocate.
struct MemoryRequest {
  std::uint64_t bytes = 0;  // 0: see permille
  unsigned permille = 0;    // of the card's memory; both 0: no limit
  bool any() const { return bytes != 0 || permille != 0; }
  // For a card of that size; 0: no limit, or it is not known how large the card is.
  std::uint64_t of(std::uint64_t card_bytes) const {
    return bytes != 0 ? bytes : card_bytes / 1000 * permille + card_bytes % 1000 * permille / 1000;
  }
};

struct JobRequest {
  std::vector<std::string> command;  // never empty
  std::string name;
  int priority = 50;
  unsigned share = 1;
  unsigned min_below_permille = 0;  // of the GPU's time, for the jobs below
  GpuRequest gpu;
  MemoryRequest memory;
  bool wait = false;                       // start it when that memory is free
  std::optional<std::uint64_t> linger_ns;  // unset: as the board has it
  std::uint64_t duration_ns = 0;           // 0: until it ends by itself
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;  // "": the caller's
  bool mps = false;               // its processes are clients of MPS
  unsigned sm_percentage = 0;     // of the SMs, for each of its processes, under MPS; 0: no cap
  bool container = false;         // add to its `docker run` what the container needs
  std::uint64_t ranks = 0;        // ranks_of(): not 0 where this is one of several ranks
};

// "high", "normal", "low" or an integer between kLowestPriority and kHighestPriority. Errors: kInvalidArgument.
Result<int> parse_priority(std::string_view text);
// 100 as "high", 50 as "normal", 0 as "low", anything else as its number.
std::string priority_name(int priority);

// An integer between 1 and kLargestShare. Errors: kInvalidArgument.
Result<unsigned> parse_share(std::string_view text);

// "5", "5%" or "2.5": per cent, 0 to 90. Returns permille. Errors: kInvalidArgument.
Result<unsigned> parse_leave_below(std::string_view text);

// "auto" for board::kDefaultLingerNs, or a duration of at most 1 s. Returns nanoseconds. Errors: kInvalidArgument.
Result<std::uint64_t> parse_linger(std::string_view text);

// A size as parse_bytes of base/units takes it, or per cent of the card's memory, such as "60%". More than 0.
// Errors: kInvalidArgument.
Result<MemoryRequest> parse_memory(std::string_view text);

// Whole per cent, 1 to 100, such as "60" or "60%". Errors: kInvalidArgument.
Result<unsigned> parse_sm_percentage(std::string_view text);

// "auto", "auto:2", "0", "0,1", "GPU-6ab0...". Errors: kInvalidArgument.
Result<GpuRequest> parse_gpus(std::string_view text);

// Words as a POSIX shell splits them: quotes and backslashes, but no expansion of any kind.
// Errors: kInvalidArgument for an unclosed quote or an operator (|, &, ;, <, >, (, ), $, `) outside quotes.
Result<std::vector<std::string>> split_words(std::string_view text);

// A short name for a command: the last path component of its program, and its script's where there is one.
std::string default_name(const std::vector<std::string>& command);

}  // namespace sluice::cli
