#include "ir/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "ir/half.h"

namespace sluice::engine {

std::size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kUint16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat:
    case DType::kInt32:
    case DType::kUint32:
      return 4;
    case DType::kInt64:
    case DType::kDouble:
    case DType::kUint64:
      return 8;
    case DType::kUndefined:
    case DType::kString:
    case DType::kComplex64:
    case DType::kComplex128:
      break;
  }
  return 0;
}

const char* dtype_name(DType dtype) {
  static constexpr const char* kNames[] = {"undefined", "float",  "uint8",     "int8",       "uint16",  "int16",
                                           "int32",     "int64",  "string",    "bool",       "float16", "double",
                                           "uint32",    "uint64", "complex64", "complex128", "bfloat16"};
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::int64_t element_count(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    count *= dim;
  }
  return count;
}

Result<std::size_t> tensor_bytes(DType dtype, const Dims& dims, std::uint64_t limit) {
  const std::size_t size = dtype_bytes(dtype);
  if (size == 0) {
    return Status::error(Code::kUnimplemented, "tensors of type %s are not supported", dtype_name(dtype));
  }
  if (dims.size() > kMaxRank) {
    return Status::error(Code::kUnimplemented, "a tensor of %zu dimensions; at most %d are supported", dims.size(),
                         kMaxRank);
  }
  std::uint64_t bytes = size;
  std::uint64_t largest = size;  // without zero dimensions: what strides are computed from must fit as well
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      return Status::error(Code::kInvalidArgument, "a dimension of %lld in a tensor of shape %s",
                           static_cast<long long>(dim), to_string(dims).c_str());
    }
    const auto factor = static_cast<std::uint64_t>(dim);
    if (__builtin_mul_overflow(largest, factor == 0 ? 1 : factor, &largest) || largest > limit) {
      return Status::error(Code::kResourceExhausted, "a tensor of shape %s is over the limit of %llu bytes",
                           to_string(dims).c_str(), static_cast<unsigned long long>(limit));
    }
    bytes = factor == 0 ? 0 : bytes * factor;
  }
  return static_cast<std::size_t>(bytes);
}

Result<Tensor> Tensor::allocate(DType dtype, const Dims& dims, std::uint64_t limit) {
  auto bytes = tensor_bytes(dtype, dims, limit);
  if (!bytes.ok()) {
    return bytes.status();
  }
  const std::size_t rounded = (std::max<std::size_t>(*bytes, 1) + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, rounded);
  if (memory == nullptr) {
    return Status::error(Code::kResourceExhausted, "no memory for a tensor of %zu bytes", *bytes);
  }
  std::memset(memory, 0, rounded);
  return Tensor(dtype, dims, std::shared_ptr<const void>(memory, std::free), static_cast<const std::byte*>(memory),
                *bytes);
}

Tensor::Tensor(DType dtype, Dims dims, std::shared_ptr<const void> owner, const std::byte* data, std::size_t bytes,
               bool mapped)
    : type_{dtype, std::move(dims)}, owner_(std::move(owner)), data_(data), bytes_(bytes), mapped_(mapped) {}

void Tensor::drop_pages() const {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(data_) / page * page;
  const auto last = (reinterpret_cast<std::uintptr_t>(data_) + bytes_ + page - 1) / page * page;
  if (mapped_ && bytes_ >= page) {  // neighbours' bytes on the first and last page come back as well
    madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
}

Result<Tensor> Tensor::to_aligned() const {
  if (aligned()) {
    return *this;
  }
  auto copy = allocate(dtype(), dims(), bytes_);
  if (copy.ok()) {
    std::memcpy(copy->mutable_data(), data_, bytes_);
  }
  return copy;
}

namespace {

template <class T>
T load(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

template <class R>
R element(const Tensor& t, std::int64_t i) {
  switch (t.dtype()) {
    case DType::kFloat:
      return static_cast<R>(load<float>(t.data(), i));
    case DType::kDouble:
      return static_cast<R>(load<double>(t.data(), i));
    case DType::kFloat16:
      return static_cast<R>(half_to_float(load<std::uint16_t>(t.data(), i)));
    case DType::kBFloat16:
      return static_cast<R>(bfloat16_to_float(load<std::uint16_t>(t.data(), i)));
    case DType::kUint8:
    case DType::kBool:
      return static_cast<R>(load<std::uint8_t>(t.data(), i));
    case DType::kInt8:
      return static_cast<R>(load<std::int8_t>(t.data(), i));
    case DType::kUint16:
      return static_cast<R>(load<std::uint16_t>(t.data(), i));
    case DType::kInt16:
      return static_cast<R>(load<std::int16_t>(t.data(), i));
    case DType::kInt32:
      return static_cast<R>(load<std::int32_t>(t.data(), i));
    case DType::kUint32:
      return static_cast<R>(load<std::uint32_t>(t.data(), i));
    case DType::kInt64:
      return static_cast<R>(load<std::int64_t>(t.data(), i));
    case DType::kUint64:
      return static_cast<R>(load<std::uint64_t>(t.data(), i));
    default:
      return R{};
  }
}

}  // namespace

double Tensor::as_double(std::int64_t i) const { return element<double>(*this, i); }

std::int64_t Tensor::as_int(std::int64_t i) const {
  // A float outside the range has no int64: 0, as it never names a sensible size.
  if (type_.dtype == DType::kFloat || type_.dtype == DType::kDouble || type_.dtype == DType::kFloat16 ||
      type_.dtype == DType::kBFloat16) {
    const double value = as_double(i);
    return value > -9.2e18 && value < 9.2e18 ? static_cast<std::int64_t>(value) : 0;
  }
  return element<std::int64_t>(*this, i);
}

Tensor Tensor::with_dims(Dims dims) const {
  return Tensor(type_.dtype, std::move(dims), owner_, data_, bytes_, mapped_);
}

std::vector<double> to_doubles(const TensorView& view) {
  const Tensor tensor(view.dtype, Dims(view.dims.begin(), view.dims.end()), nullptr,
                      static_cast<const std::byte*>(view.data), view.bytes);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.as_double(static_cast<std::int64_t>(i));
  }
  return values;
}

std::vector<std::int64_t> int_values(const Tensor& tensor) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.as_int(static_cast<std::int64_t>(i));
  }
  return values;
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

std::string to_string(const TensorType& type) { return dtype_name(type.dtype) + to_string(type.dims); }

}  // namespace sluice::engine
