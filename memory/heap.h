// An address range cut into blocks, in use or free: the bookkeeping of a pool, without a driver.
//
// Free blocks lie in bins by size, 32 to a power of two, as in TLSF (Masmano et al., ECRTS 2004): taking and giving
// cost the same whatever the heap holds. Unlike there, the block of the bin that fits best is taken, among the first
// few: memory counts for more here than a few nanoseconds.
//
// Every free block has an owner: the number of the stream behind whose work it may be used again, or kNobody, when
// nothing can use it any more. Neighbours merge when one owner has both.
//
// Not thread safe. Addresses are numbers here; nothing is read or written there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace sluice::memory {

class Heap {
 public:
  static constexpr std::uint64_t kGrain = 512;  // bytes: all sizes and addresses are multiples; PyTorch's, too
  static constexpr int kNobody = 0;             // the owner of what any stream may use at once

  struct Block {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    Block* before = nullptr;  // its neighbours in the address range; null at the edge of what is mapped
    Block* after = nullptr;
    Block* next = nullptr;  // in its bin
    Block* previous = nullptr;
    int owner = kNobody;
    bool used = false;
  };
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };
  // Which end of a free block is taken: what is large and lives long at the one, what is small at the other, so that
  // neither stands in the way of the other's merging.
  enum class End { kLow, kHigh };

  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // The number of a new owner.
  int add_owner();

  // Adds free addresses, which nothing in the heap overlaps. REQUIRES: multiples of kGrain.
  void add(Range range, int owner);

  // A block of `bytes`, rounded up to kGrain, of what `owner` or nobody has, its address a multiple of `alignment`;
  // null if no free block is that large. REQUIRES: bytes > 0; alignment is a power of two and at least kGrain.
  Block* take(std::uint64_t bytes, int owner, End end, std::uint64_t alignment = kGrain);

  // Gives a block back, to be used behind the work of `owner`.
  void give(Block* block, int owner);

  // Of all that `from` has, makes `to` the owner, merging neighbours.
  void move(int from, int to);

  // Takes the addresses of `bytes`, a multiple of `chunk`, out of free blocks of `owner`, in whole chunks, largest
  // blocks first; empty, and nothing changed, if they do not have that many. REQUIRES: chunk is a multiple of kGrain.
  std::vector<Range> remove_chunks(std::uint64_t bytes, std::uint64_t chunk, int owner);

  std::uint64_t total_bytes() const { return total_bytes_; }
  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t free_bytes(int owner) const { return owners_[static_cast<std::size_t>(owner)].bytes; }
  std::uint64_t largest_free_bytes() const;  // of one owner's; looks through one bin for each owner

 private:
  static constexpr int kSplits = 32;  // bins to a power of two
  static constexpr int kRows = 33;    // up to 2^37 grains: 64 TiB
  static constexpr int kLooked = 16;  // blocks of one bin that are compared

  struct Bins {
    std::array<std::array<Block*, kSplits>, kRows> first = {};
    std::array<std::uint32_t, kRows> filled = {};  // a bit for each bin of the row that has a block
    std::uint64_t rows = 0;                        // a bit for each row that has a bit
    std::uint64_t bytes = 0;
  };

  static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }
  static int bin_of(std::uint64_t bytes);
  Block* find(int owner, std::uint64_t bytes, std::uint64_t alignment, End end, std::uint64_t* at) const;
  Block* make(std::uint64_t address, std::uint64_t bytes);
  void drop(Block* block);
  Bins& bins(int owner) { return owners_[static_cast<std::size_t>(owner)]; }
  void link(Block* block, int owner);
  void unlink(Block* block);
  Block* split(Block* block, std::uint64_t bytes);  // the part from `bytes` on; both are in no bin
  Block* join(Block* low, Block* high);             // two neighbours in no bin
  Block* joined(Block* block, int owner);           // with the free neighbours that may, in no bin

  std::deque<Block> blocks_;
  Block* spare_ = nullptr;  // dropped blocks, by `next`
  std::vector<Bins> owners_ = std::vector<Bins>(1);
  std::uint64_t total_bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace sluice::memory
