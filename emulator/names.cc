// Every name of the driver's: which function cuGetProcAddress answers, and what those do that are not implemented.
//
// cuda.h stays out of this file: each name is declared without its arguments, to be taken the address of or, where
// nothing else defines it, to say that it is not supported.
#include "names.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "profile.h"

namespace {

constexpr int kNotSupported = 801;

int unsupported(const char* name) {
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::string>& seen = *new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  if (seen.insert(name).second) sluice::emulator::say("%s is not supported", name);
  return kNotSupported;
}

}  // namespace

// Weak: the library's own definition of the name, where it has one, takes its place at link time.
#define SLUICE_EXPORT(symbol) \
  extern "C" __attribute__((weak, visibility("default"))) int symbol() { return unsupported(#symbol); }
#include "sluice/cuda_abi/exports.inc"
#undef SLUICE_EXPORT

namespace {

struct Row {
  const char* name;
  int version;
  std::uint64_t flags;
  void* address;
};

#define SLUICE_ENTRY(symbol, name, version, flags, cls, params, args) \
  {#name, version, flags, reinterpret_cast<void*>(&symbol)},
#define SLUICE_ALIAS SLUICE_ENTRY
const Row kRows[] = {
#include "sluice/cuda_abi/entries.inc"
};

// The newest entry point of that name and default stream that is not newer than `version`.
const Row* find(const char* name, int version, std::uint64_t flags, bool* known) {
  const Row* best = nullptr;
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) != 0) continue;
    *known = true;
    if (row.flags == flags && row.version <= version && (best == nullptr || row.version > best->version)) best = &row;
  }
  return best;
}

}  // namespace

namespace sluice::emulator {

Lookup look_up(const char* name, int version, std::uint64_t flags) {
  bool known = false;
  const Row* row = nullptr;
  // Calls without a stream exist once, whichever default stream is asked for.
  if ((flags & kPerThreadDefaultStream) != 0) row = find(name, version, kPerThreadDefaultStream, &known);
  if (row == nullptr) row = find(name, version, 0, &known);
  return {row != nullptr ? row->address : nullptr, known};
}

}  // namespace sluice::emulator
