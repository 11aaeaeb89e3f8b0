// Percentiles, and how sure one may be of their ratio. Pure functions; thread safe.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::bench {

// The value at the nearest rank: the smallest one that at least `quantile` of the values do not exceed.
// REQUIRES: `sorted` ascending and not empty; 0 < quantile <= 1.
double percentile(const std::vector<double>& sorted, double quantile);

struct Interval {
  double low = 0;
  double high = 0;
};

// 95 % percentile bootstrap of percentile(numerator) / percentile(denominator), the two resampled independently, a
// request at a time. Deterministic for a given seed. REQUIRES: as percentile(), for both.
Interval bootstrap_ratio(const std::vector<double>& numerator, const std::vector<double>& denominator, double quantile,
                         int resamples = 4000, std::uint64_t seed = 1);

}  // namespace sluice::bench
