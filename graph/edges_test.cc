// Dependencies from ranges, against the definition: two stages that touch a byte, one of them writing, are ordered.
#include "edges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace sluice::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Accesses = std::vector<RangeAccess>;

std::vector<std::vector<std::uint32_t>> derive(const std::vector<Accesses>& stages, std::size_t buffers, Reach* reach) {
  EdgeDeriver deriver(buffers);
  std::vector<std::uint32_t> position(stages.size());
  std::iota(position.begin(), position.end(), 0);
  reach->reset(stages.size());
  std::vector<std::vector<std::uint32_t>> result(stages.size());
  for (std::uint32_t s = 0; s < stages.size(); ++s) {
    deriver.add(s, stages[s].data(), stages[s].size(), &result[s]);
    reach->add(s, &result[s], position);
  }
  return result;
}

RangeAccess r(std::uint32_t buffer, std::uint64_t begin, std::uint64_t end) {
  return {buffer, true, false, begin, end};
}
RangeAccess w(std::uint32_t buffer, std::uint64_t begin, std::uint64_t end) {
  return {buffer, false, true, begin, end};
}

TEST(Edges, ReadAfterWriteWriteAfterReadWriteAfterWrite) {
  Reach reach;
  const auto from = derive({{w(0, 0, 8)}, {r(0, 4, 6)}, {w(0, 5, 9)}, {w(0, 0, 4)}}, 1, &reach);
  EXPECT_THAT(from[0], IsEmpty());
  EXPECT_THAT(from[1], ElementsAre(0));
  EXPECT_THAT(from[2], ElementsAre(1));  // the edge from 0 follows
  EXPECT_THAT(from[3], ElementsAre(0));
  EXPECT_TRUE(reach.before(0, 2));
  EXPECT_FALSE(reach.before(2, 3));
}

TEST(Edges, ReadersAndNeighboursAreIndependent) {
  Reach reach;
  const auto from = derive({{r(0, 0, 8)}, {r(0, 0, 8)}, {w(0, 8, 16)}, {r(1, 0, 8)}}, 2, &reach);
  for (const auto& list : from) EXPECT_THAT(list, IsEmpty());
}

TEST(Edges, WriterWaitsForAllReaders) {
  Reach reach;
  const auto from = derive({{r(0, 0, 4)}, {r(0, 2, 8)}, {w(0, 0, 8)}, {r(0, 0, 1)}}, 1, &reach);
  EXPECT_THAT(from[2], ElementsAre(1, 0));
  EXPECT_THAT(from[3], ElementsAre(2));
}

TEST(Edges, RandomStagesAreOrderedWhereTheyConflictAndNowhereElse) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<Accesses> stages(30);
    for (Accesses& stage : stages) {
      for (unsigned i = random() % 3 + 1; i > 0; --i) {
        const std::uint64_t begin = random() % 60;
        const bool writes = random() % 3 == 0;
        stage.push_back({static_cast<std::uint32_t>(random() % 3), !writes || random() % 2 == 0, writes, begin,
                         begin + 1 + random() % 12});
      }
    }
    Reach reach;
    const auto from = derive(stages, 3, &reach);
    std::vector<std::vector<bool>> expected(stages.size(), std::vector<bool>(stages.size()));
    for (std::size_t b = 0; b < stages.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        for (const RangeAccess& x : stages[a]) {
          for (const RangeAccess& y : stages[b]) {
            if (x.buffer != y.buffer || x.end <= y.begin || y.end <= x.begin || !(x.writes || y.writes)) continue;
            expected[a][b] = true;
          }
        }
      }
    }
    for (std::size_t k = 0; k < stages.size(); ++k) {
      for (std::size_t a = 0; a < stages.size(); ++a) {
        for (std::size_t b = 0; b < stages.size(); ++b) {
          if (expected[a][k] && expected[k][b]) expected[a][b] = true;
        }
      }
    }
    for (std::uint32_t a = 0; a < stages.size(); ++a) {
      for (std::uint32_t b = 0; b < stages.size(); ++b) ASSERT_EQ(reach.before(a, b), expected[a][b]) << a << ' ' << b;
    }
    for (std::uint32_t b = 0; b < stages.size(); ++b) {
      for (const std::uint32_t x : from[b]) {
        for (const std::uint32_t y : from[b]) ASSERT_FALSE(reach.before(x, y)) << "an edge that follows from others";
      }
    }
  }
}

}  // namespace
}  // namespace sluice::graph
