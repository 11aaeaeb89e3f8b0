// A constant tensor: type, shape and shared, immutable bytes. Copies are cheap and share the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "sluice/engine.h"

namespace sluice::engine {

inline constexpr int kMaxRank = 16;  // more dimensions are refused at import

struct TensorType {
  DType dtype = DType::kUndefined;
  Dims dims;
  bool operator==(const TensorType&) const = default;
};

// Bytes of a dense tensor. Errors: kInvalidArgument (a negative dimension, too many dimensions, a type without size),
// kResourceExhausted (more than `limit`).
Result<std::size_t> tensor_bytes(DType dtype, const Dims& dims, std::uint64_t limit = Limits{}.tensor_bytes);

class Tensor {
 public:
  Tensor() = default;
  // Zeroed memory of its own, aligned to 64 bytes. Errors: as tensor_bytes, and kResourceExhausted.
  static Result<Tensor> allocate(DType dtype, const Dims& dims, std::uint64_t limit = Limits{}.tensor_bytes);
  // Somebody else's bytes, which `owner` keeps alive; they may have any alignment. `mapped`: they are a private,
  // read-only mapping of a file. REQUIRES: bytes as tensor_bytes says.
  Tensor(DType dtype, Dims dims, std::shared_ptr<const void> owner, const std::byte* data, std::size_t bytes,
         bool mapped = false);

  DType dtype() const { return type_.dtype; }
  const Dims& dims() const { return type_.dims; }
  const TensorType& type() const { return type_; }
  std::size_t bytes() const { return bytes_; }
  std::int64_t elements() const { return element_count(type_.dims); }
  const std::byte* data() const { return data_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Whether data() is aligned for its element type.
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(data_) % alignment(type_.dtype) == 0; }
  // This tensor, or a copy whose data is aligned. Errors: kResourceExhausted.
  Result<Tensor> to_aligned() const;

  // REQUIRES: made by allocate() and not shared yet.
  std::byte* mutable_data() { return const_cast<std::byte*>(data_); }
  template <class T>
  T* mutable_as() {
    return reinterpret_cast<T*>(mutable_data());
  }

  // Element `i`, converted to T; any alignment. REQUIRES: 0 <= i < elements(), a supported type.
  double as_double(std::int64_t i) const;
  std::int64_t as_int(std::int64_t i) const;

  // Gives the memory back that mapped bytes take; they are read from the file again when they are needed again.
  void drop_pages() const;

  // The same bytes with other dims. REQUIRES: the same number of elements.
  Tensor with_dims(Dims dims) const;

 private:
  static std::size_t alignment(DType dtype) { return dtype_bytes(dtype) == 0 ? 1 : dtype_bytes(dtype); }

  TensorType type_;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

// All elements of an integer (or bool) tensor.
std::vector<std::int64_t> int_values(const Tensor& tensor);

// "float[1, 3, 224, 224]".
std::string to_string(const TensorType& type);
std::string to_string(const Dims& dims);

}  // namespace sluice::engine
