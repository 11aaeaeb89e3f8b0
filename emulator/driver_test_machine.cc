#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "driver_test.h"

namespace sluice::emulator::testing {

std::string use_own_machine() {
  std::string directory = (std::filesystem::temp_directory_path() / "sluice-emulator-test-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) std::abort();
  setenv("SLUICE_RUNTIME_DIR", directory.c_str(), 1);
  return directory;
}

void remove_machine(const std::string& directory) { std::filesystem::remove_all(directory); }

}  // namespace sluice::emulator::testing
