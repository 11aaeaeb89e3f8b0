// libcuda.so.1, found and opened at run time; nothing of it is linked.
//
// Finding: $SLUICE_DRIVER (an absolute path: the emulator, or what `sluice run` resolved), else the dynamic linker's
// own search with Sluice's directories left out. Thread safe. Uses no C++ runtime library (the shim contains it).
#pragma once

#include <cstddef>

#include "sluice/base/status.h"

namespace sluice::driver {

// Absolute path of the installed libcuda.so.1 that is not one of Sluice's own. Errors: kUnavailable with what to do.
Status find_library(char* out, std::size_t bytes);

// Opens the library at `path` (or find_library's answer when null). The handle is never closed: the driver's own
// threads may outlive any point at which closing would be safe. Errors: kUnavailable.
Result<void*> open_library(const char* path = nullptr);

// The library that programs of this process use: Sluice's shim where the dynamic linker finds it first, as it does
// under `sluice run`, else what open_library() opens. For rooms that are part of a program, not of Sluice's own
// machinery. Errors: kUnavailable.
Result<void*> open_process_library();

// True for a library that is Sluice's shim (it exports sluice_shim_version) or emulator (sluice_emulator_version).
bool is_shim(void* handle);
bool is_emulator(void* handle);

// Typed look-up of an exported name, null if there is none: auto f = symbol<decltype(&cuInit)>(h, "cuInit").
void* symbol_address(void* handle, const char* name);
template <class F>
F symbol(void* handle, const char* name) {
  return reinterpret_cast<F>(symbol_address(handle, name));
}

}  // namespace sluice::driver
