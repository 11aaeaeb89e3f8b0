#include "slabs.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

namespace sluice::memory {

int small_class(std::uint64_t bytes) {
  // By the number of grains: 1, 2, 3, 4, up to 6, 8, 12, 16.
  static constexpr std::array<std::int8_t, 17> kClasses = {0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7};
  return kClasses[(bytes + Heap::kGrain - 1) / Heap::kGrain];
}

int Slab::piece_at(std::uint64_t at) const {
  // Both fit 32 bits, in which dividing is cheaper.
  const auto offset = static_cast<std::uint32_t>(at - address);
  const auto size = static_cast<std::uint32_t>(kSmallSizes[static_cast<std::size_t>(size_class)]);
  const std::uint32_t piece = offset / size;
  return piece * size == offset && piece < pieces ? static_cast<int>(piece) : -1;
}

bool Slab::mark_used(int piece) {
  const std::uint64_t bit = std::uint64_t{1} << (piece % 64);
  return (used[static_cast<std::size_t>(piece) / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

bool Slab::mark_free(int piece) {
  const std::uint64_t bit = std::uint64_t{1} << (piece % 64);
  return (used[static_cast<std::size_t>(piece) / 64].fetch_and(~bit, std::memory_order_relaxed) & bit) != 0;
}

Slabs::Slabs(Heap* heap, Heap::Range addresses) : heap_(heap), addresses_(addresses) {
  table_bytes_ = (addresses.bytes / kSlabBytes + 2) * sizeof *table_;
  void* pages = mmap(nullptr, table_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  table_ = static_cast<std::atomic<Slab*>*>(pages);
}

Slabs::~Slabs() { munmap(table_, table_bytes_); }

Slab* Slabs::find(std::uint64_t address) const {
  if (address - addresses_.address >= addresses_.bytes) return nullptr;
  // Slabs are aligned, the addresses as a whole need not be.
  return table_[address / kSlabBytes - addresses_.address / kSlabBytes].load(std::memory_order_acquire);
}

Slab** Slabs::list_of(int owner, int size_class) {
  const auto index = static_cast<std::size_t>(owner);
  if (partial_.size() <= index) partial_.resize(index + 1);
  return &partial_[index][static_cast<std::size_t>(size_class)];
}

void Slabs::link(Slab* slab) {
  Slab** first = list_of(slab->owner, slab->size_class);
  slab->previous = nullptr;
  slab->next = *first;
  if (*first != nullptr) (*first)->previous = slab;
  *first = slab;
}

void Slabs::unlink(Slab* slab) {
  if (slab->previous != nullptr) {
    slab->previous->next = slab->next;
  } else {
    *list_of(slab->owner, slab->size_class) = slab->next;
  }
  if (slab->next != nullptr) slab->next->previous = slab->previous;
}

Slab* Slabs::make(int size_class, int owner) {
  Heap::Block* block = heap_->take(kSlabBytes, owner, Heap::End::kHigh, kSlabBytes);
  if (block == nullptr) return nullptr;
  Slab* slab = nullptr;
  if (spare_.empty()) {
    slab = &all_.emplace_back();
  } else {
    slab = spare_.back();
    spare_.pop_back();
  }
  slab->address = block->address;
  slab->size_class = size_class;
  slab->owner = owner;
  slab->pieces = static_cast<std::uint32_t>(kSlabBytes / kSmallSizes[static_cast<std::size_t>(size_class)]);
  slab->free = slab->pieces;
  slab->free_bits = {slab->pieces >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << slab->pieces) - 1,
                     slab->pieces == 128 ? ~std::uint64_t{0} : 0};
  for (auto& bits : slab->used) bits.store(0, std::memory_order_relaxed);
  slab->block = block;
  link(slab);
  ++slabs_;
  table_[slab->address / kSlabBytes - addresses_.address / kSlabBytes].store(slab, std::memory_order_release);
  return slab;
}

void Slabs::release(Slab* slab) {
  unlink(slab);
  table_[slab->address / kSlabBytes - addresses_.address / kSlabBytes].store(nullptr, std::memory_order_release);
  heap_->give(slab->block, slab->owner);
  slab->block = nullptr;
  spare_.push_back(slab);
  --slabs_;
}

std::size_t Slabs::take(int size_class, int owner, std::size_t count, std::uint64_t* out) {
  std::size_t taken = 0;
  const std::uint64_t size = kSmallSizes[static_cast<std::size_t>(size_class)];
  while (taken < count) {
    Slab* slab = *list_of(owner, size_class);
    // Another slab only for the first piece: those beyond it are kept, not needed.
    if (slab == nullptr && taken == 0) slab = make(size_class, owner);
    if (slab == nullptr) break;
    for (std::size_t word = 0; word < 2; ++word) {
      while (slab->free_bits[word] != 0 && taken < count) {
        const int bit = std::countr_zero(slab->free_bits[word]);
        slab->free_bits[word] &= slab->free_bits[word] - 1;
        --slab->free;
        out[taken++] = slab->address + (word * 64 + static_cast<std::uint64_t>(bit)) * size;
      }
    }
    if (slab->free == 0) unlink(slab);
  }
  return taken;
}

void Slabs::give(const std::uint64_t* addresses, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Slab* slab = find(addresses[i]);
    const auto piece = static_cast<std::size_t>(slab->piece_at(addresses[i]));
    if (slab->free == 0) link(slab);
    slab->free_bits[piece / 64] |= std::uint64_t{1} << (piece % 64);
    if (++slab->free == slab->pieces && (slab->next != nullptr || slab->previous != nullptr)) release(slab);
  }
}

void Slabs::release_empty() {
  for (Lists& lists : partial_) {
    for (Slab* slab : lists) {
      while (slab != nullptr) {
        Slab* next = slab->next;
        if (slab->free == slab->pieces) release(slab);
        slab = next;
      }
    }
  }
}

}  // namespace sluice::memory
