#include "sluice/cuda_abi.h"

#include <cstring>

namespace sluice::cuda_abi {
namespace {

constexpr Entry kEntries[] = {
#define SLUICE_ENTRY(symbol, name, version, flags, cls, params, args) {#symbol, #name, version, flags, Class::k##cls},
#include "sluice/cuda_abi/entries.inc"
};

constexpr const char* kExports[] = {
#define SLUICE_EXPORT(symbol) #symbol,
#include "sluice/cuda_abi/exports.inc"
#undef SLUICE_EXPORT
};

// The first entry of `name`, or the end.
const Entry* first_of(const char* name) {
  const Entry* first = std::begin(kEntries);
  std::size_t count = std::size(kEntries);
  while (count > 0) {
    const std::size_t half = count / 2;
    if (std::strcmp(first[half].name, name) < 0) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

const Entry* newest(const char* name, int version, std::uint64_t flags) {
  const Entry* best = nullptr;
  for (const Entry* e = first_of(name); e != std::end(kEntries) && std::strcmp(e->name, name) == 0; ++e) {
    if (e->flags == flags && e->version <= version) best = e;
  }
  return best;
}

bool has_variant(const char* name, std::uint64_t flags) {
  for (const Entry* e = first_of(name); e != std::end(kEntries) && std::strcmp(e->name, name) == 0; ++e) {
    if (e->flags == flags) return true;
  }
  return false;
}

}  // namespace

std::span<const Entry> entries() { return kEntries; }

std::span<const char* const> exports() { return kExports; }

const Entry* find(const char* name, int version, std::uint64_t flags) {
  if (!name || flags > 3) return nullptr;
  if ((flags & 2) && has_variant(name, 2)) return newest(name, version, 2);
  return newest(name, version, 0);
}

const Entry* find_symbol(const char* symbol) {
  if (!symbol) return nullptr;
  for (const Entry& e : kEntries) {
    if (std::strcmp(e.symbol, symbol) == 0) return &e;
  }
  return nullptr;
}

}  // namespace sluice::cuda_abi
