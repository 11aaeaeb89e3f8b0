// libFuzzer: no file that claims to be a linker cache may lead a reader outside it.
#include <cstdlib>
#include <cstring>

#include "ld_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const sluice::driver::LdCache cache(data, size);
  for (std::uint32_t i = 0; i <= cache.size(); ++i) {
    const char* path = cache.path_of(i, "libcuda.so.1");
    if (path == nullptr) continue;
    const auto* end = data + size;
    const auto* last = reinterpret_cast<const std::uint8_t*>(path) + std::strlen(path);
    if (reinterpret_cast<const std::uint8_t*>(path) < data || last >= end) std::abort();
  }
  return 0;
}
