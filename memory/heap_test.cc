#include "heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sluice::memory {
namespace {

using End = Heap::End;
constexpr std::uint64_t kBase = 1ull << 40, kMiB = 1ull << 20, kGrain = Heap::kGrain;

struct HeapTest : ::testing::Test {
  HeapTest() { heap.add({kBase, 64 * kMiB}, Heap::kNobody); }
  Heap heap;
  int a = heap.add_owner(), b = heap.add_owner();
};

TEST_F(HeapTest, TakesFromTheEndThatIsAsked) {
  EXPECT_EQ(heap.take(1, a, End::kLow)->address, kBase);
  EXPECT_EQ(heap.take(1, a, End::kHigh)->address, kBase + 64 * kMiB - kGrain);
  EXPECT_EQ(heap.free_bytes(), 64 * kMiB - 2 * kGrain);
}

TEST_F(HeapTest, TakesAllOfIt) {
  Heap::Block* all = heap.take(64 * kMiB, a, End::kLow);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(heap.take(1, a, End::kLow), nullptr);
  EXPECT_EQ(heap.largest_free_bytes(), 0u);
  heap.give(all, a);
  EXPECT_EQ(heap.largest_free_bytes(), 64 * kMiB);
}

TEST_F(HeapTest, SizesThatWouldOverflowFitNowhere) {
  EXPECT_EQ(heap.take(~std::uint64_t{0}, a, End::kLow), nullptr);
  EXPECT_EQ(heap.take(64 * kMiB + 1, a, End::kLow), nullptr);
}

TEST_F(HeapTest, WhatOneOwnerGaveIsNotTheOthers) {
  heap.give(heap.take(64 * kMiB, a, End::kLow), a);
  EXPECT_EQ(heap.take(kMiB, b, End::kLow), nullptr);
  EXPECT_NE(heap.take(kMiB, a, End::kLow), nullptr);
  heap.move(a, b);
  EXPECT_EQ(heap.free_bytes(a), 0u);
  EXPECT_NE(heap.take(63 * kMiB, b, End::kLow), nullptr);
}

TEST_F(HeapTest, NeighboursOfTwoOwnersMergeOnceOneHasBoth) {
  Heap::Block* low = heap.take(32 * kMiB, a, End::kLow);
  Heap::Block* high = heap.take(32 * kMiB, b, End::kLow);
  heap.give(low, a);
  heap.give(high, b);
  EXPECT_EQ(heap.largest_free_bytes(), 32 * kMiB);
  heap.move(b, a);
  EXPECT_EQ(heap.largest_free_bytes(), 64 * kMiB);
}

TEST_F(HeapTest, AFreedBlockDoesNotMakeTheRestOfThePoolItsOwners) {
  heap.give(heap.take(kMiB, a, End::kLow), a);
  EXPECT_EQ(heap.free_bytes(a), kMiB);
  EXPECT_NE(heap.take(63 * kMiB, b, End::kLow), nullptr) << "without waiting for a";
}

TEST_F(HeapTest, AlignedBlocksLeaveTheirEdgesFree) {
  ASSERT_NE(heap.take(kGrain, a, End::kLow), nullptr);
  Heap::Block* aligned = heap.take(3 * kGrain, a, End::kLow, 64 * 1024);
  EXPECT_EQ(aligned->address, kBase + 64 * 1024);
  EXPECT_EQ(heap.take(127 * kGrain, a, End::kLow)->address, kBase + kGrain);
  EXPECT_EQ(heap.take(kGrain, a, End::kHigh, 64 * 1024)->address, kBase + 64 * kMiB - 64 * 1024);
}

TEST_F(HeapTest, AmongBlocksOfOneBinTheBestIsTaken) {
  std::vector<Heap::Block*> blocks, between;
  for (std::uint64_t grains : {1010, 1001, 1005}) {  // one bin is 992 to 1023
    blocks.push_back(heap.take(grains * kGrain, a, End::kLow));
    between.push_back(heap.take(kGrain, a, End::kLow));
  }
  const std::uint64_t tight = blocks[1]->address;
  for (Heap::Block* block : blocks) heap.give(block, a);
  EXPECT_EQ(heap.take(1001 * kGrain, a, End::kLow)->address, tight);
}

TEST_F(HeapTest, ChunksAreRemovedWholeOrNotAtAll) {
  std::vector<Heap::Block*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(heap.take(4 * kMiB - (i == 0 ? kGrain : 0), a, End::kLow));
  for (std::size_t i = 0; i < 16; i += 2) heap.give(blocks[i], a);  // eight holes, of which none holds 8 MiB
  EXPECT_EQ(heap.take(8 * kMiB, a, End::kLow), nullptr);
  EXPECT_THAT(heap.remove_chunks(64 * kMiB, 2 * kMiB, a), ::testing::IsEmpty());
  const std::uint64_t total = heap.total_bytes(), free = heap.free_bytes();
  const std::vector<Heap::Range> removed = heap.remove_chunks(8 * kMiB, 2 * kMiB, a);
  std::uint64_t bytes = 0;
  for (const Heap::Range& range : removed) {
    EXPECT_EQ(range.address % (2 * kMiB), 0u);
    bytes += range.bytes;
  }
  EXPECT_EQ(bytes, 8 * kMiB);
  EXPECT_EQ(heap.total_bytes(), total - bytes);
  EXPECT_EQ(heap.free_bytes(), free - bytes);
  heap.add({kBase + 1024 * kMiB, 8 * kMiB}, a);
  EXPECT_EQ(heap.take(8 * kMiB, a, End::kLow)->address, kBase + 1024 * kMiB);
}

// Against a list of what is in use: nothing overlaps, nothing is lost, and all comes back as one block.
TEST(HeapRandomTest, NothingOverlapsAndNothingIsLost) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Heap heap;
    constexpr std::uint64_t kBytes = 32 * kMiB;
    heap.add({kBase, kBytes}, Heap::kNobody);
    const int owners[] = {heap.add_owner(), heap.add_owner(), heap.add_owner()};
    std::map<std::uint64_t, Heap::Block*> used;
    std::uint64_t used_bytes = 0;
    for (int step = 0; step < 3000; ++step) {
      const int owner = owners[random() % 3];
      if (random() % 100 < 55) {
        const std::uint64_t bytes = 1 + random() % (1ull << (9 + random() % 13));
        const std::uint64_t alignment = random() % 4 == 0 ? 64 * 1024 : kGrain;
        Heap::Block* block = heap.take(bytes, owner, random() % 2 ? End::kLow : End::kHigh, alignment);
        if (block == nullptr) continue;
        ASSERT_GE(block->bytes, bytes);
        ASSERT_LT(block->bytes, bytes + kGrain);
        ASSERT_EQ(block->address % alignment, 0u);
        const auto above = used.lower_bound(block->address);
        if (above != used.end()) {
          ASSERT_LE(block->address + block->bytes, above->first);
        }
        if (above != used.begin()) {
          const Heap::Block* below = std::prev(above)->second;
          ASSERT_LE(below->address + below->bytes, block->address);
        }
        ASSERT_GE(block->address, kBase);
        ASSERT_LE(block->address + block->bytes, kBase + kBytes);
        used.emplace(block->address, block);
        used_bytes += block->bytes;
      } else if (!used.empty()) {
        auto at = used.lower_bound(kBase + random() % kBytes);
        if (at == used.end()) at = used.begin();
        used_bytes -= at->second->bytes;
        heap.give(at->second, owner);
        used.erase(at);
      }
      if (random() % 200 == 0) heap.move(owner, random() % 2 ? owners[random() % 3] : Heap::kNobody);
      ASSERT_EQ(heap.free_bytes(), kBytes - used_bytes);
      ASSERT_EQ(heap.free_bytes(0) + heap.free_bytes(1) + heap.free_bytes(2) + heap.free_bytes(3), heap.free_bytes());
    }
    for (const auto& [address, block] : used) heap.give(block, owners[0]);
    for (int owner : owners) heap.move(owner, Heap::kNobody);
    EXPECT_EQ(heap.largest_free_bytes(), kBytes);
  }
}

}  // namespace
}  // namespace sluice::memory
