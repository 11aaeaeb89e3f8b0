// One element of a tensor whose type is only known at run time, for small operands such as scales.
#pragma once

#include "ir/half.h"
#include "operators/schema.h"

namespace sluice::engine {

// REQUIRES: a floating type.
inline double float_element(const TensorRef& tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case DType::kDouble:
      return tensor.as<double>()[i];
    case DType::kFloat16:
      return static_cast<double>(static_cast<float>(tensor.as<Half>()[i]));
    case DType::kBFloat16:
      return static_cast<double>(static_cast<float>(tensor.as<BFloat16>()[i]));
    default:
      return static_cast<double>(tensor.as<float>()[i]);
  }
}

// Rounds to the tensor's type. REQUIRES: a floating type.
inline void set_float_element(const TensorRef& tensor, std::int64_t i, double value) {
  switch (tensor.dtype) {
    case DType::kDouble:
      tensor.out<double>()[i] = value;
      break;
    case DType::kFloat16:
      tensor.out<Half>()[i] = Half(static_cast<float>(value));
      break;
    case DType::kBFloat16:
      tensor.out<BFloat16>()[i] = BFloat16(static_cast<float>(value));
      break;
    default:
      tensor.out<float>()[i] = static_cast<float>(value);
  }
}

}  // namespace sluice::engine
