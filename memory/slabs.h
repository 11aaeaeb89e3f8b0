// Small blocks: slabs of 64 KiB out of the heap, each cut into pieces of one of eight sizes for one owner.
//
// Any thread may ask which slab an address is of, and mark a piece as in use or free, at any time: that is what lets a
// thread keep pieces for itself without the pool's lock. All else is under that lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "heap.h"

namespace sluice::memory {

inline constexpr std::uint64_t kSlabBytes = 64 * 1024;
// At most a third of a piece is lost to rounding up, and 4 KiB of a slab to what does not divide it.
inline constexpr std::array<std::uint64_t, 8> kSmallSizes = {512, 1024, 1536, 2048, 3072, 4096, 6144, 8192};
inline constexpr std::uint64_t kSmallBytes = kSmallSizes.back();

// The index into kSmallSizes of the smallest that fits. REQUIRES: 0 < bytes <= kSmallBytes.
int small_class(std::uint64_t bytes);

struct Slab {
  std::uint64_t address = 0;
  int size_class = 0;
  int owner = 0;
  std::uint32_t pieces = 0;
  std::uint32_t free = 0;                          // pieces that are in no thread's keeping and not in use
  std::array<std::uint64_t, 2> free_bits = {};     // which
  std::array<std::atomic<std::uint64_t>, 2> used;  // pieces that are in use
  Heap::Block* block = nullptr;                    // null while the slab is not of the heap
  Slab* next = nullptr;                            // among those of its owner and size with free pieces
  Slab* previous = nullptr;

  // The piece that starts there, or -1.
  int piece_at(std::uint64_t at) const;
  // Marks a piece, and says whether it was not marked so before. Any thread, any time.
  bool mark_used(int piece);
  bool mark_free(int piece);
};

class Slabs {
 public:
  // For a heap within `addresses`.
  explicit Slabs(Heap* heap, Heap::Range addresses);
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // The slab that `address` lies in, or null. Any thread; the answer stays true as long as a piece of it is in use.
  Slab* find(std::uint64_t address) const;

  // Up to `count` free pieces, to `out`; fewer, or none, when the heap has no room for another slab.
  std::size_t take(int size_class, int owner, std::size_t count, std::uint64_t* out);
  // Takes pieces back that are not in use. A slab that has all its pieces goes back to the heap, unless it is the only
  // one of its size and owner with any.
  void give(const std::uint64_t* addresses, std::size_t count);
  // Gives all empty slabs to the heap.
  void release_empty();

  std::uint64_t bytes() const { return slabs_ * kSlabBytes; }  // of the heap

 private:
  using Lists = std::array<Slab*, kSmallSizes.size()>;  // slabs with free pieces, by size

  Slab* make(int size_class, int owner);
  void link(Slab* slab);
  void unlink(Slab* slab);
  void release(Slab* slab);
  Slab** list_of(int owner, int size_class);

  Heap* heap_;
  Heap::Range addresses_;
  std::atomic<Slab*>* table_ = nullptr;  // one a kSlabBytes of addresses_; of fresh pages, since most are never touched
  std::size_t table_bytes_ = 0;
  std::deque<Slab> all_;  // a slab that was released is used again, so that find() never meets a freed one
  std::vector<Slab*> spare_;
  std::vector<Lists> partial_;  // by owner
  std::uint64_t slabs_ = 0;
};

}  // namespace sluice::memory
