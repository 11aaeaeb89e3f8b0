// The shim's only voice: whole lines on standard error, each once a process, never standard output.
#pragma once

#include <atomic>

namespace sluice::shim {

// Prints "sluice: " and the formatted line by one write(2), unless `once` was used before or SLUICE_LOG=error.
[[gnu::format(printf, 2, 3)]] void say_once(std::atomic<bool>* once, const char* format, ...);

}  // namespace sluice::shim
