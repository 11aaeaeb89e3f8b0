// The dynamic linker's cache, /etc/ld.so.cache, read without the dynamic linker: inside the shim a search by soname
// would answer with the shim itself. Thread safe; nothing is trusted to be inside the file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::driver {

class LdCache {
 public:
  // `data` must outlive the object. Anything that is no cache in glibc's 1.1 format has no entries.
  LdCache(const void* data, std::size_t bytes);

  std::uint32_t size() const { return entries_; }

  // Path of entry `index` if that is a library named `soname` for this machine's instruction set, else null. The path
  // is zero-terminated within the data.
  const char* path_of(std::uint32_t index, const char* soname) const;

 private:
  const char* text(std::uint32_t offset) const;  // null unless it ends within the data

  const unsigned char* base_ = nullptr;  // what offsets count from
  std::size_t bytes_ = 0;                // from base_
  std::uint32_t entries_ = 0;
};

}  // namespace sluice::driver
