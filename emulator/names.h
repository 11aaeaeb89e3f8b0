// The names that cuGetProcAddress knows.
#pragma once

#include <cstdint>

namespace sluice::emulator {

inline constexpr std::uint64_t kPerThreadDefaultStream = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

struct Lookup {
  void* address = nullptr;  // null if there is none
  bool known = false;       // the name exists, if only in a newer CUDA version
};
// The newest entry point `name` that is not newer than `version`.
Lookup look_up(const char* name, int version, std::uint64_t flags);

}  // namespace sluice::emulator
