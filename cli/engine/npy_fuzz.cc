// Any bytes as a .npy file: an array of the size that its header says, or refused, in memory no larger than the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 0;
  const auto array = sluice::cli::read_npy(
      [&](char* to, std::size_t wanted) {
        const std::size_t got = std::min(wanted, size - at);
        if (got > 0) std::memcpy(to, data + at, got);
        at += got;
        return got;
      },
      size);
  if (!array.ok()) return 0;
  const auto bytes = sluice::cli::array_bytes(array->dtype, array->dims);
  if (!bytes.ok() || *bytes != array->data.size() || *bytes > size) std::abort();
  if (!sluice::cli::npy_header(array->dtype, array->dims).ok()) std::abort();
  return 0;
}
