// Any bytes as a .npz file: arrays, or refused.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "npz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("npz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  const auto arrays = sluice::cli::read_npz_file(path);
  if (!arrays.ok()) return 0;
  for (const auto& [name, array] : *arrays) {
    const auto bytes = sluice::cli::array_bytes(array.dtype, array.dims);
    if (!bytes.ok() || *bytes != array.data.size()) std::abort();
  }
  return 0;
}
