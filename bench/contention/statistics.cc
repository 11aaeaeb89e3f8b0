#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice::bench {
namespace {

std::size_t rank_of(std::size_t count, double quantile) {
  auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(count)));
  return std::clamp<std::size_t>(rank, 1, count);
}

// The percentile of one resample, without making it: resampling n values picks n uniform positions, and the k-th
// smallest of n uniform numbers is distributed as Beta(k, n + 1 - k).
class ResampledPercentile {
 public:
  ResampledPercentile(const std::vector<double>& sorted, double quantile)
      : sorted_(sorted),
        below_(static_cast<double>(rank_of(sorted.size(), quantile))),
        above_(static_cast<double>(sorted.size() + 1 - rank_of(sorted.size(), quantile))) {}

  double operator()(std::mt19937_64& random) {
    double x = below_(random);
    double y = above_(random);
    auto index = static_cast<std::size_t>(x / (x + y) * static_cast<double>(sorted_.size()));
    return sorted_[std::min(index, sorted_.size() - 1)];
  }

 private:
  const std::vector<double>& sorted_;
  std::gamma_distribution<double> below_;
  std::gamma_distribution<double> above_;
};

}  // namespace

double percentile(const std::vector<double>& sorted, double quantile) {
  return sorted[rank_of(sorted.size(), quantile) - 1];
}

Interval bootstrap_ratio(const std::vector<double>& numerator, const std::vector<double>& denominator, double quantile,
                         int resamples, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ResampledPercentile top(numerator, quantile);
  ResampledPercentile bottom(denominator, quantile);
  std::vector<double> ratios(static_cast<std::size_t>(resamples));
  for (double& ratio : ratios) ratio = top(random) / bottom(random);
  std::sort(ratios.begin(), ratios.end());
  return {percentile(ratios, 0.025), percentile(ratios, 0.975)};
}

}  // namespace sluice::bench
