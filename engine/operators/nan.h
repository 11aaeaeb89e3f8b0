// Whether a number of any element type is NaN.
#pragma once

#include <cmath>

#include "operators/dispatch.h"

namespace sluice::engine {

template <class T>
bool is_nan(T value) {
  if constexpr (kIsFloating<T>) {
    return std::isnan(static_cast<ComputeType<T>>(value));
  } else {
    return false;
  }
}

}  // namespace sluice::engine
