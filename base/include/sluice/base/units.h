// Sizes and durations as people write them. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/base/status.h"

namespace sluice {

// "90s", "1.5m", "2h", "250ms", "100us"; a bare number is seconds. Errors: kInvalidArgument.
Result<std::uint64_t> parse_duration_ns(std::string_view text);

// "8GiB", "8G", "512M", "1.5TiB" in powers of 1024; "8GB" in powers of 1000; a bare number is bytes, upper and lower
// case are the same. Errors: kInvalidArgument.
Result<std::uint64_t> parse_bytes(std::string_view text);

// 1536 MiB as "1.50 GiB"; 0 as "0 B".
std::string format_bytes(std::uint64_t bytes);

// 1234567 ns as "1.23 ms"; three significant digits.
std::string format_duration_ns(std::uint64_t ns);

}  // namespace sluice
