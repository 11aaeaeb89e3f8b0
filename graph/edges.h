// Which stage waits for which, from the byte ranges that they access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sluice::graph {

struct RangeAccess {
  std::uint32_t buffer;
  bool reads, writes;
  std::uint64_t begin, end;  // bytes, begin < end
};

using Edge = std::pair<std::uint32_t, std::uint32_t>;  // from, to

// The dependencies of stages that are run in the order of their numbers, added up stage by stage.
class EdgeDeriver {
 public:
  explicit EdgeDeriver(std::size_t buffers) : buffers_(buffers) {}
  // Appends to `from` the stages that `stage` must wait for, with repetitions. Stages come in ascending order.
  void add(std::uint32_t stage, const RangeAccess* accesses, std::size_t count, std::vector<std::uint32_t>* from);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Who used these bytes last. Readers are a list that splitting a segment shares.
  struct Segment {
    std::uint64_t begin, end;
    std::uint32_t writer, readers;
  };
  struct Reader {
    std::uint32_t stage, next;
  };
  void read(std::vector<Segment>& segments, std::uint32_t stage, const RangeAccess& a,
            std::vector<std::uint32_t>* from);
  void write(std::vector<Segment>& segments, std::uint32_t stage, const RangeAccess& a,
             std::vector<std::uint32_t>* from);
  static std::size_t split(std::vector<Segment>& segments, std::uint64_t at);

  std::vector<std::vector<Segment>> buffers_;  // each sorted, without overlap
  std::vector<Reader> readers_;
};

// Who comes before whom, directly or through others.
class Reach {
 public:
  static constexpr std::size_t kMaxStages = 32768;  // its memory is a bit for each pair

  void reset(std::size_t stages);
  bool before(std::uint32_t a, std::uint32_t b) const { return (row(b)[a / 64] >> (a % 64) & 1) != 0; }
  // All of `from` have been added. What is left of it are those that no other of them comes after.
  void add(std::uint32_t stage, std::vector<std::uint32_t>* from, const std::vector<std::uint32_t>& position);

 private:
  const std::uint64_t* row(std::uint32_t stage) const { return &bits_[stage * words_]; }
  std::size_t words_ = 0;
  std::vector<std::uint64_t> bits_;
};

}  // namespace sluice::graph
