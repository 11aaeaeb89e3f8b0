// Blocks by the address at which they begin: open addressing with linear probing, at most half full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heap.h"

namespace sluice::memory {

// Not thread safe.
class AddressMap {
 public:
  void insert(Heap::Block* block) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::size_t at = home(block->address);
    while (slots_[at] != nullptr) at = next(at);
    slots_[at] = block;
    ++count_;
  }

  // Takes the block out; null if there is none.
  Heap::Block* remove(std::uint64_t address) {
    std::size_t at = home(address);
    while (slots_[at] != nullptr && slots_[at]->address != address) at = next(at);
    Heap::Block* block = slots_[at];
    if (block == nullptr) return nullptr;
    // What follows moves up, if it may: a look-up ends at the first empty slot.
    for (std::size_t from = next(at); slots_[from] != nullptr; from = next(from)) {
      const std::size_t wanted = home(slots_[from]->address);
      if (((from - wanted) & (slots_.size() - 1)) < ((from - at) & (slots_.size() - 1))) continue;
      slots_[at] = slots_[from];
      at = from;
    }
    slots_[at] = nullptr;
    --count_;
    return block;
  }

 private:
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4): the addresses' low bits are all zero.
  std::size_t home(std::uint64_t address) const { return (address / Heap::kGrain * 0x9E3779B97F4A7C15u) >> shift_; }

  void grow() {
    std::vector<Heap::Block*> old = std::move(slots_);
    slots_.assign(old.size() * 2, nullptr);
    --shift_;
    count_ = 0;
    for (Heap::Block* block : old) {
      if (block != nullptr) insert(block);
    }
  }

  int shift_ = 64 - 10;
  std::vector<Heap::Block*> slots_ = std::vector<Heap::Block*>(1024);
  std::size_t count_ = 0;
};

}  // namespace sluice::memory
