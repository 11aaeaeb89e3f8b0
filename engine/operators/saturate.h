// Rounding into a quantized type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sluice::engine {

// round(value) + zero, ties to even, clamped to Y's range; not a number becomes `zero`.
template <class Y>
Y saturate(float value, std::int32_t zero) {
  const float lowest = static_cast<float>(std::numeric_limits<Y>::min()), highest = std::numeric_limits<Y>::max();
  const float rounded = std::nearbyint(value) + static_cast<float>(zero);
  return std::isnan(rounded) ? static_cast<Y>(zero) : static_cast<Y>(std::clamp(rounded, lowest, highest));
}

}  // namespace sluice::engine
