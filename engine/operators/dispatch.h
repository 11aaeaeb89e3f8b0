// From an element type to code for it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ir/half.h"
#include "sluice/engine.h"

namespace sluice::engine {

// What a calculation on T is done in.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <class T>
inline constexpr bool kIsFloating = std::is_floating_point_v<ComputeType<T>>;

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type of `dtype`. bool is std::uint8_t with a tag of its own only where it matters.
// REQUIRES: a supported type. Every branch of f is compiled for every type: take dispatch_floats and so on where few
// fit.
template <class F>
auto dispatch_floats(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kDouble:
      return f(TypeTag<double>{});
    case DType::kFloat16:
      return f(TypeTag<Half>{});
    case DType::kBFloat16:
      return f(TypeTag<BFloat16>{});
    default:
      return f(TypeTag<float>{});
  }
}

template <class F>
auto dispatch_integers(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kBool:
      return f(TypeTag<std::uint8_t>{});
    case DType::kInt8:
      return f(TypeTag<std::int8_t>{});
    case DType::kUint16:
      return f(TypeTag<std::uint16_t>{});
    case DType::kInt16:
      return f(TypeTag<std::int16_t>{});
    case DType::kInt32:
      return f(TypeTag<std::int32_t>{});
    case DType::kUint32:
      return f(TypeTag<std::uint32_t>{});
    case DType::kUint64:
      return f(TypeTag<std::uint64_t>{});
    default:
      return f(TypeTag<std::int64_t>{});
  }
}

inline bool is_floating(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

template <class F>
auto dispatch_numbers(DType dtype, F&& f) {
  return is_floating(dtype) ? dispatch_floats(dtype, f) : dispatch_integers(dtype, f);
}

// By size only: for kernels that move elements.
template <class F>
auto dispatch_sizes(DType dtype, F&& f) {
  switch (dtype_bytes(dtype)) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    default:
      return f(TypeTag<std::uint64_t>{});
  }
}

}  // namespace sluice::engine
