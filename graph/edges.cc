#include "edges.h"

#include <algorithm>

namespace sluice::graph {

// The index of the segment that begins at `at`, or of the first behind it; one that spans it is cut in two.
std::size_t EdgeDeriver::split(std::vector<Segment>& segments, std::uint64_t at) {
  const auto found =
      std::partition_point(segments.begin(), segments.end(), [at](const Segment& s) { return s.end <= at; });
  const auto index = static_cast<std::size_t>(found - segments.begin());
  if (found == segments.end() || found->begin >= at) return index;
  Segment left = *found;
  left.end = at;
  found->begin = at;
  segments.insert(found, left);
  return index + 1;
}

void EdgeDeriver::read(std::vector<Segment>& segments, std::uint32_t stage, const RangeAccess& a,
                       std::vector<std::uint32_t>* from) {
  std::size_t i = split(segments, a.begin);
  std::uint64_t at = a.begin;
  while (at < a.end) {
    if (i == segments.size() || segments[i].begin > at) {  // nobody used these bytes yet
      const std::uint64_t end = i == segments.size() ? a.end : std::min(a.end, segments[i].begin);
      segments.insert(segments.begin() + static_cast<std::ptrdiff_t>(i), Segment{at, end, kNone, kNone});
    } else if (segments[i].end > a.end) {
      split(segments, a.end);
    }
    Segment& s = segments[i];
    if (s.writer != kNone && s.writer != stage) from->push_back(s.writer);
    if (s.readers == kNone || readers_[s.readers].stage != stage) {
      readers_.push_back({stage, s.readers});
      s.readers = static_cast<std::uint32_t>(readers_.size() - 1);
    }
    at = s.end;
    ++i;
  }
}

void EdgeDeriver::write(std::vector<Segment>& segments, std::uint32_t stage, const RangeAccess& a,
                        std::vector<std::uint32_t>* from) {
  const std::size_t first = split(segments, a.begin);
  const std::size_t last = split(segments, a.end);
  for (std::size_t i = first; i < last; ++i) {
    const Segment& s = segments[i];
    if (s.writer != kNone && s.writer != stage) from->push_back(s.writer);
    for (std::uint32_t r = s.readers; r != kNone; r = readers_[r].next) {
      if (readers_[r].stage != stage) from->push_back(readers_[r].stage);
    }
  }
  const Segment whole{a.begin, a.end, stage, kNone};
  const auto begin = segments.begin() + static_cast<std::ptrdiff_t>(first);
  if (first == last) {
    segments.insert(begin, whole);
  } else {
    *begin = whole;
    segments.erase(begin + 1, segments.begin() + static_cast<std::ptrdiff_t>(last));
  }
}

void EdgeDeriver::add(std::uint32_t stage, const RangeAccess* accesses, std::size_t count,
                      std::vector<std::uint32_t>* from) {
  for (std::size_t i = 0; i < count; ++i) {
    if (accesses[i].reads) read(buffers_[accesses[i].buffer], stage, accesses[i], from);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (accesses[i].writes) write(buffers_[accesses[i].buffer], stage, accesses[i], from);
  }
}

void Reach::reset(std::size_t stages) {
  words_ = (stages + 63) / 64;
  bits_.assign(stages * words_, 0);
}

void Reach::add(std::uint32_t stage, std::vector<std::uint32_t>* from, const std::vector<std::uint32_t>& position) {
  // The latest first: what an earlier one adds may follow from a later one, never the other way round.
  std::sort(from->begin(), from->end(),
            [&position](std::uint32_t a, std::uint32_t b) { return position[a] > position[b]; });
  std::uint64_t* mine = &bits_[stage * words_];
  std::size_t kept = 0;
  for (const std::uint32_t f : *from) {
    if ((mine[f / 64] >> (f % 64) & 1) != 0) continue;
    (*from)[kept++] = f;
    const std::uint64_t* theirs = row(f);
    for (std::size_t w = 0; w < words_; ++w) mine[w] |= theirs[w];
    mine[f / 64] |= std::uint64_t{1} << (f % 64);
  }
  from->resize(kept);
}

}  // namespace sluice::graph
