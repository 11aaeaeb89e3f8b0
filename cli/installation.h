// Where the pieces of this installation (or build tree) are, from the place of the running program. Thread safe.
#pragma once

#include <string>

namespace sluice::cli {

struct Installation {
  std::string program;          // bin/sluice itself
  std::string daemon;           // bin/sluiced
  std::string engine;           // lib/sluice/engine, the verbs that need the engine
  std::string shim_dir;         // lib/sluice/shim, which holds libcuda.so.1
  std::string emulator_driver;  // lib/sluice/emulator/libcuda.so.1
  std::string emulator_nvml;    // lib/sluice/emulator/libnvidia-ml.so.1
};

// Paths only; whether the files are there is for the user of each to find out.
Installation find_installation();

bool file_exists(const std::string& path);

}  // namespace sluice::cli
