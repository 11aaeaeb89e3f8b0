// Arrays that come from files and go to files, in main memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/engine.h"

namespace sluice::cli {

// Dense, row-major, aligned for any element type.
struct Array {
  engine::DType dtype = engine::DType::kUndefined;
  engine::Dims dims;
  std::vector<std::byte> data;

  engine::TensorView view() const { return {dtype, dims, data.data(), data.size()}; }
};

struct NamedView {
  std::string name;
  engine::TensorView view;
};

inline constexpr std::uint64_t kArrayBytesLimit = 8ull << 30;

// Bytes of an array. Errors: kInvalidArgument (a negative dimension, more than 32 of them), kResourceExhausted (over
// kArrayBytesLimit).
Result<std::size_t> array_bytes(engine::DType dtype, const engine::Dims& dims);

// "1x3x224x224", "scalar".
std::string shape_text(const engine::Dims& dims);
// Likewise, with ? where a dimension is open.
std::string shape_text(const engine::TensorSpec& spec);

}  // namespace sluice::cli
