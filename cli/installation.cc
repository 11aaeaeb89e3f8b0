#include "installation.h"

#include <limits.h>
#include <unistd.h>

namespace sluice::cli {

Installation find_installation() {
  char path[PATH_MAX];
  const ssize_t got = readlink("/proc/self/exe", path, sizeof path);
  Installation found;
  found.program.assign(path, got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::string bin = found.program.substr(0, found.program.rfind('/'));
  const std::string prefix = bin.substr(0, bin.rfind('/'));
  found.daemon = bin + "/sluiced";
  found.engine = prefix + "/lib/sluice/engine";
  found.shim_dir = prefix + "/lib/sluice/shim";
  found.emulator_driver = prefix + "/lib/sluice/emulator/libcuda.so.1";
  found.emulator_nvml = prefix + "/lib/sluice/emulator/libnvidia-ml.so.1";
  return found;
}

bool file_exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

}  // namespace sluice::cli
