#include "ld_cache.h"

#include <cstring>

namespace sluice::driver {
namespace {

constexpr char kOldMagic[] = "ld.so-1.7.0";  // an older table may stand in front of the new one
constexpr std::size_t kOldHeader = 16;
constexpr std::size_t kOldEntry = 12;
constexpr char kNewMagic[] = "glibc-ld.so.cache1.1";
constexpr std::size_t kNewHeader = 48;
constexpr std::size_t kNewEntry = 24;

// Of an entry's flags: the low byte is 3 for an ELF library of glibc, the next names the instruction set.
#if defined(__aarch64__)
constexpr std::uint32_t kFlags = 0x0a03;
#else
constexpr std::uint32_t kFlags = 0x0303;
#endif

std::uint32_t word_at(const unsigned char* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

LdCache::LdCache(const void* data, std::size_t bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  if (bytes >= kOldHeader && std::memcmp(at, kOldMagic, sizeof kOldMagic - 1) == 0) {
    const std::size_t old = kOldHeader + kOldEntry * static_cast<std::size_t>(word_at(at + 12));
    const std::size_t skip = (old + 7) / 8 * 8;
    if (skip >= bytes) return;
    at += skip;
    bytes -= skip;
  }
  if (bytes < kNewHeader || std::memcmp(at, kNewMagic, sizeof kNewMagic - 1) != 0) return;
  const std::uint32_t entries = word_at(at + 20);
  if (entries > (bytes - kNewHeader) / kNewEntry) return;
  base_ = at;
  bytes_ = bytes;
  entries_ = entries;
}

const char* LdCache::text(std::uint32_t offset) const {
  if (offset >= bytes_) return nullptr;
  if (std::memchr(base_ + offset, '\0', bytes_ - offset) == nullptr) return nullptr;
  return reinterpret_cast<const char*>(base_ + offset);
}

const char* LdCache::path_of(std::uint32_t index, const char* soname) const {
  if (index >= entries_) return nullptr;
  const unsigned char* entry = base_ + kNewHeader + kNewEntry * static_cast<std::size_t>(index);
  if (word_at(entry) != kFlags) return nullptr;
  const char* key = text(word_at(entry + 4));
  return key != nullptr && std::strcmp(key, soname) == 0 ? text(word_at(entry + 8)) : nullptr;
}

}  // namespace sluice::driver
