#include "heap.h"

#include <algorithm>
#include <bit>

namespace sluice::memory {
namespace {

std::uint64_t up(std::uint64_t value, std::uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
std::uint64_t down(std::uint64_t value, std::uint64_t multiple) { return value / multiple * multiple; }

// Where in `block` the bytes would lie.
bool place(const Heap::Block& block, std::uint64_t bytes, std::uint64_t alignment, Heap::End end, std::uint64_t* at) {
  if (block.bytes < bytes) return false;
  const std::uint64_t highest = down(block.address + block.bytes - bytes, alignment);
  *at = end == Heap::End::kHigh ? highest : up(block.address, alignment);
  return *at >= block.address && *at <= highest;
}

}  // namespace

int Heap::bin_of(std::uint64_t bytes) {
  const std::uint64_t grains = bytes / kGrain;
  if (grains < kSplits) return static_cast<int>(grains);
  const int shift = std::bit_width(grains) - std::bit_width(std::uint64_t{kSplits});
  return (shift + 1) * kSplits + static_cast<int>((grains >> shift) % kSplits);
}

int Heap::add_owner() {
  owners_.emplace_back();
  return static_cast<int>(owners_.size()) - 1;
}

Heap::Block* Heap::make(std::uint64_t address, std::uint64_t bytes) {
  Block* block = spare_;
  if (block != nullptr) {
    spare_ = block->next;
  } else {
    block = &blocks_.emplace_back();
  }
  *block = {};
  block->address = address;
  block->bytes = bytes;
  return block;
}

void Heap::drop(Block* block) {
  block->next = spare_;
  spare_ = block;
}

void Heap::link(Block* block, int owner) {
  const int bin = bin_of(block->bytes), row = bin / kSplits, split = bin % kSplits;
  Bins& own = bins(owner);
  Block*& first = own.first[row][split];
  block->owner = owner;
  block->used = false;
  block->previous = nullptr;
  block->next = first;
  if (first != nullptr) first->previous = block;
  first = block;
  own.filled[row] |= 1u << split;
  own.rows |= std::uint64_t{1} << row;
  own.bytes += block->bytes;
}

void Heap::unlink(Block* block) {
  const int bin = bin_of(block->bytes), row = bin / kSplits, split = bin % kSplits;
  Bins& own = bins(block->owner);
  if (block->previous != nullptr) {
    block->previous->next = block->next;
  } else {
    own.first[row][split] = block->next;
    if (block->next == nullptr) own.filled[row] &= ~(1u << split);
    if (own.filled[row] == 0) own.rows &= ~(std::uint64_t{1} << row);
  }
  if (block->next != nullptr) block->next->previous = block->previous;
  own.bytes -= block->bytes;
}

Heap::Block* Heap::split(Block* block, std::uint64_t bytes) {
  Block* rest = make(block->address + bytes, block->bytes - bytes);
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest;
  block->bytes = bytes;
  return rest;
}

Heap::Block* Heap::join(Block* low, Block* high) {
  low->bytes += high->bytes;
  low->after = high->after;
  if (low->after != nullptr) low->after->before = low;
  drop(high);
  return low;
}

Heap::Block* Heap::joined(Block* block, int owner) {
  const auto may_join = [owner](const Block* other) {
    return other != nullptr && !other->used && other->owner == owner;
  };
  while (may_join(block->before)) {
    unlink(block->before);
    block = join(block->before, block);
  }
  while (may_join(block->after)) {
    unlink(block->after);
    block = join(block, block->after);
  }
  return block;
}

void Heap::add(Range range, int owner) {
  total_bytes_ += range.bytes;
  free_bytes_ += range.bytes;
  link(make(range.address, range.bytes), owner);
}

Heap::Block* Heap::find(int owner, std::uint64_t bytes, std::uint64_t alignment, End end, std::uint64_t* at) const {
  const Bins& own = owners_[static_cast<std::size_t>(owner)];
  const int lowest = bin_of(bytes);
  std::uint64_t rows = own.rows >> (lowest / kSplits) << (lowest / kSplits);
  for (; rows != 0; rows &= rows - 1) {
    const int row = std::countr_zero(rows);
    std::uint32_t filled = own.filled[row];
    if (row == lowest / kSplits) filled = filled >> (lowest % kSplits) << (lowest % kSplits);
    for (; filled != 0; filled &= filled - 1) {
      Block* best = nullptr;
      int looked = 0;
      for (Block* block = own.first[row][std::countr_zero(filled)]; block != nullptr && looked < kLooked;
           block = block->next, ++looked) {
        std::uint64_t here = 0;
        if (!place(*block, bytes, alignment, end, &here)) continue;
        if (best != nullptr && (best->bytes < block->bytes || (best->bytes == block->bytes &&
                                                               (best->address < block->address) == (end == End::kLow))))
          continue;
        best = block;
        *at = here;
      }
      if (best != nullptr) return best;
    }
  }
  return nullptr;
}

Heap::Block* Heap::take(std::uint64_t bytes, int owner, End end, std::uint64_t alignment) {
  if (bytes > total_bytes_) return nullptr;  // and rounding up could overflow
  bytes = rounded(bytes);
  std::uint64_t at = 0;
  Block* block = find(owner, bytes, alignment, end, &at);
  if (block == nullptr && owner != kNobody) block = find(kNobody, bytes, alignment, end, &at);
  if (block == nullptr) return nullptr;
  unlink(block);
  const int before = block->owner;
  if (at > block->address) {
    Block* front = block;
    block = split(front, at - front->address);
    link(front, before);
  }
  if (block->bytes > bytes) link(split(block, bytes), before);
  block->used = true;
  free_bytes_ -= bytes;
  return block;
}

void Heap::give(Block* block, int owner) {
  free_bytes_ += block->bytes;
  block->used = false;
  link(joined(block, owner), owner);
}

void Heap::move(int from, int to) {
  if (from == to) return;
  Bins& source = bins(from);
  while (source.rows != 0) {
    const int row = std::countr_zero(source.rows);
    Block* block = source.first[row][std::countr_zero(source.filled[row])];
    unlink(block);
    // A neighbour of `from` would be joined as such; it comes to `to` in its own turn, and finds this one there.
    link(joined(block, to), to);
  }
}

std::vector<Heap::Range> Heap::remove_chunks(std::uint64_t bytes, std::uint64_t chunk, int owner) {
  std::vector<Block*> holding;
  std::uint64_t available = 0;
  const auto whole = [&](const Block& block) {
    const std::uint64_t begin = up(block.address, chunk), end = down(block.address + block.bytes, chunk);
    return Range{begin, end > begin ? end - begin : 0};
  };
  for (const auto& row : bins(owner).first) {
    for (Block* block : row) {
      for (; block != nullptr; block = block->next) {
        if (whole(*block).bytes == 0) continue;
        holding.push_back(block);
        available += whole(*block).bytes;
      }
    }
  }
  std::vector<Range> removed;
  if (available < bytes) return removed;
  std::sort(holding.begin(), holding.end(), [](const Block* a, const Block* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->address < b->address;
  });
  for (Block* block : holding) {
    if (bytes == 0) break;
    Range range = whole(*block);
    range.bytes = std::min(range.bytes, bytes);
    bytes -= range.bytes;
    unlink(block);
    Block* hole = block;
    if (range.address > block->address) {
      hole = split(block, range.address - block->address);
      link(block, owner);
    }
    if (hole->bytes > range.bytes) link(split(hole, range.bytes), owner);
    if (hole->before != nullptr) hole->before->after = nullptr;
    if (hole->after != nullptr) hole->after->before = nullptr;
    drop(hole);
    total_bytes_ -= range.bytes;
    free_bytes_ -= range.bytes;
    removed.push_back(range);
  }
  return removed;
}

std::uint64_t Heap::largest_free_bytes() const {
  std::uint64_t largest = 0;
  for (const Bins& own : owners_) {
    if (own.rows == 0) continue;
    const int row = std::bit_width(own.rows) - 1;
    const int split = std::bit_width(own.filled[row]) - 1;
    for (const Block* block = own.first[row][split]; block != nullptr; block = block->next)
      largest = std::max(largest, block->bytes);
  }
  return largest;
}

}  // namespace sluice::memory
