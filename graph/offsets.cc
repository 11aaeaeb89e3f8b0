#include "offsets.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace sluice::graph {
namespace {

using Order = std::vector<std::uint32_t>;
constexpr std::uint64_t kUnplaced = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kWork = 200'000;  // pairs looked at in the search for a better order: a fraction of a millisecond

// One after another in the order given, each into the smallest gap between those it conflicts with.
std::uint64_t place_in_order(const Order& order, const std::vector<std::uint64_t>& sizes,
                             const std::vector<std::vector<std::uint32_t>>& conflicts,
                             std::vector<std::uint64_t>* offsets) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  offsets->assign(sizes.size(), kUnplaced);
  std::uint64_t peak = 0;
  for (const std::uint32_t i : order) {
    taken.clear();
    for (const std::uint32_t other : conflicts[i]) {
      if ((*offsets)[other] != kUnplaced) taken.emplace_back((*offsets)[other], (*offsets)[other] + sizes[other]);
    }
    std::sort(taken.begin(), taken.end());
    std::uint64_t end = 0, best = kUnplaced, best_gap = kUnplaced;
    for (const auto& [from, to] : taken) {
      if (from > end && from - end >= sizes[i] && from - end < best_gap) {
        best = end;
        best_gap = from - end;
      }
      end = std::max(end, to);
    }
    (*offsets)[i] = best == kUnplaced ? end : best;
    peak = std::max(peak, (*offsets)[i] + sizes[i]);
  }
  return peak;
}

// What some that conflict with each other take: greedily around the one with most.
std::uint64_t clique_around(std::uint32_t seed, const std::vector<std::uint64_t>& sizes,
                            const std::vector<std::vector<std::uint32_t>>& conflicts) {
  Order candidates = conflicts[seed];
  std::sort(candidates.begin(), candidates.end(), [&](auto a, auto b) { return sizes[a] > sizes[b]; });
  Order members{seed};
  std::uint64_t total = sizes[seed];
  for (const std::uint32_t c : candidates) {
    const auto& of_c = conflicts[c];  // sorted by place()
    if (std::all_of(members.begin(), members.end(),
                    [&](std::uint32_t m) { return std::binary_search(of_c.begin(), of_c.end(), m); })) {
      members.push_back(c);
      total += sizes[c];
    }
  }
  return total;
}

// Edmonds-Karp would do; this is Dinic's, by levels.
class Flow {
 public:
  explicit Flow(std::size_t nodes) : first_(nodes) {}
  void add(std::size_t from, std::size_t to, std::uint64_t capacity) {
    first_[from].push_back(arcs_.size());
    arcs_.push_back({to, capacity});
    first_[to].push_back(arcs_.size());
    arcs_.push_back({from, 0});
  }
  std::uint64_t run(std::size_t source, std::size_t sink) {
    std::uint64_t total = 0;
    while (levels(source, sink)) {
      next_.assign(first_.size(), 0);
      while (const std::uint64_t pushed = push(source, sink, kUnplaced)) total += pushed;
    }
    return total;
  }

 private:
  struct Arc {
    std::size_t to;
    std::uint64_t left;
  };
  bool levels(std::size_t source, std::size_t sink) {
    level_.assign(first_.size(), -1);
    level_[source] = 0;
    std::vector<std::size_t> queue{source};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const std::size_t a : first_[queue[i]]) {
        if (arcs_[a].left == 0 || level_[arcs_[a].to] >= 0) continue;
        level_[arcs_[a].to] = level_[queue[i]] + 1;
        queue.push_back(arcs_[a].to);
      }
    }
    return level_[sink] >= 0;
  }
  std::uint64_t push(std::size_t at, std::size_t sink, std::uint64_t most) {
    if (at == sink) return most;
    for (std::size_t& i = next_[at]; i < first_[at].size(); ++i) {
      const std::size_t a = first_[at][i];
      if (arcs_[a].left == 0 || level_[arcs_[a].to] != level_[at] + 1) continue;
      if (const std::uint64_t pushed = push(arcs_[a].to, sink, std::min(most, arcs_[a].left))) {
        arcs_[a].left -= pushed;
        arcs_[a ^ 1].left += pushed;
        return pushed;
      }
    }
    return 0;
  }
  std::vector<std::vector<std::size_t>> first_;
  std::vector<Arc> arcs_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace

Placement place(const std::vector<std::uint64_t>& sizes, const std::vector<std::vector<std::uint32_t>>& conflicts) {
  Placement best;
  const std::size_t n = sizes.size();
  if (n == 0) return best;
  std::size_t pairs = n;
  std::vector<std::uint64_t> together(n);
  for (std::size_t i = 0; i < n; ++i) {
    pairs += conflicts[i].size();
    together[i] = sizes[i];
    for (const std::uint32_t other : conflicts[i]) together[i] += sizes[other];
  }
  Order order(n);
  std::iota(order.begin(), order.end(), 0);
  const auto most = static_cast<std::uint32_t>(std::max_element(together.begin(), together.end()) - together.begin());
  best.lower_bound = std::max(clique_around(most, sizes, conflicts), *std::max_element(sizes.begin(), sizes.end()));

  std::vector<std::uint64_t> offsets;
  const auto attempt = [&](const Order& o) {
    const std::uint64_t peak = place_in_order(o, sizes, conflicts, &offsets);
    if (best.offsets.empty() || peak < best.peak) {
      best.peak = peak;
      best.offsets = offsets;
    }
    return peak;
  };
  Order by_neighbours = order;
  std::stable_sort(by_neighbours.begin(), by_neighbours.end(),
                   [&](auto a, auto b) { return together[a] > together[b]; });
  attempt(by_neighbours);
  Order by_size = order;
  std::stable_sort(by_size.begin(), by_size.end(), [&](auto a, auto b) { return sizes[a] > sizes[b]; });
  attempt(by_size);
  // Whoever sticks out on top gets an earlier choice.
  for (Order* o : {&by_neighbours, &by_size}) {
    for (std::size_t left = kWork / pairs; left > 0 && best.peak > best.lower_bound; --left) {
      const std::uint64_t peak = attempt(*o);
      const auto top = std::find_if(o->begin(), o->end(), [&](auto i) { return offsets[i] + sizes[i] == peak; });
      if (top == o->begin()) break;
      std::rotate(o->begin() + (top - o->begin()) / 2, top, top + 1);
    }
  }
  return best;
}

std::uint64_t heaviest_together(const std::vector<std::uint64_t>& sizes,
                                const std::vector<std::vector<std::uint32_t>>& before) {
  // Dilworth with weights: the heaviest antichain weighs what is left of the sum when chains share as much as they can.
  const std::size_t n = sizes.size(), source = 2 * n, sink = 2 * n + 1;
  Flow flow(2 * n + 2);
  for (std::size_t i = 0; i < n; ++i) {
    flow.add(source, i, sizes[i]);
    flow.add(n + i, sink, sizes[i]);
    for (const std::uint32_t later : before[i]) flow.add(i, n + later, kUnplaced);
  }
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) - flow.run(source, sink);
}

}  // namespace sluice::graph
