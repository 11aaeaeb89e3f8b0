#include "import/tensors.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <charconv>

namespace sluice::engine {
namespace {

template <class... Args>
Status fault(const onnx::TensorProto& proto, Code code, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  return Status::error(code, "tensor '%.80s': %s", proto.name().c_str(), text.c_str());
}

// Typed fields: int32_data carries every small type, an element each.
template <class T, class Field>
bool copy_field(const Field& field, Tensor& tensor) {
  if (field.size() != tensor.elements()) {
    return false;
  }
  T* out = tensor.mutable_as<T>();
  for (const auto value : field) {
    *out++ = static_cast<T>(value);
  }
  return true;
}

bool copy_typed(const onnx::TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat:
      return copy_field<float>(proto.float_data(), tensor);
    case DType::kDouble:
      return copy_field<double>(proto.double_data(), tensor);
    case DType::kInt64:
      return copy_field<std::int64_t>(proto.int64_data(), tensor);
    case DType::kUint64:
      return copy_field<std::uint64_t>(proto.uint64_data(), tensor);
    case DType::kUint32:
      return copy_field<std::uint32_t>(proto.uint64_data(), tensor);
    case DType::kInt32:
      return copy_field<std::int32_t>(proto.int32_data(), tensor);
    case DType::kInt16:
      return copy_field<std::int16_t>(proto.int32_data(), tensor);
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return copy_field<std::uint16_t>(proto.int32_data(), tensor);
    case DType::kInt8:
      return copy_field<std::int8_t>(proto.int32_data(), tensor);
    case DType::kUint8:
    case DType::kBool:
      return copy_field<std::uint8_t>(proto.int32_data(), tensor);
    default:
      return false;
  }
}

// Bools are 0 or 1 in the engine; a file may hold any byte.
bool is_clean(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) {
    return true;
  }
  for (std::size_t i = 0; i < tensor.bytes(); ++i) {
    if (std::to_integer<unsigned>(tensor.data()[i]) > 1) {
      return false;
    }
  }
  return true;
}

bool parse_number(const std::string& text, std::uint64_t& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

Result<Tensor> TensorReader::read(const onnx::TensorProto& proto) {
  const auto dtype = static_cast<DType>(proto.data_type() >= 0 && proto.data_type() <= 16 ? proto.data_type() : 0);
  if (proto.has_segment()) {
    return fault(proto, Code::kUnimplemented, "it is stored in segments; store it whole");
  }
  const Dims dims(proto.dims().begin(), proto.dims().end());
  auto bytes = tensor_bytes(dtype, dims, limits_.tensor_bytes);
  if (!bytes.ok()) {
    return fault(proto, bytes.status().code(), "{}", bytes.status().message());
  }
  Result<Tensor> tensor = Tensor();
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    tensor = read_external(proto, dtype, dims, *bytes);
  } else if (proto.has_raw_data()) {
    const auto raw = slim_.resolve(proto.raw_data());
    if (raw.size() != *bytes) {
      return fault(proto, Code::kInvalidArgument, "it has {} bytes where its shape needs {}; the file is damaged",
                   raw.size(), *bytes);
    }
    if (reinterpret_cast<const char*>(raw.data()) != proto.raw_data().data()) {
      tensor = Tensor(dtype, dims, file_, raw.data(), raw.size(), true);
    } else {
      tensor = Tensor::allocate(dtype, dims);
      if (tensor.ok() && !raw.empty()) {
        std::memcpy(tensor->mutable_data(), raw.data(), raw.size());
      }
    }
  } else {
    // Every element takes at least a byte of the file, so that nothing is allocated for data that is not there.
    const std::int64_t stored = std::int64_t{proto.float_data_size()} + proto.double_data_size() +
                                proto.int32_data_size() + proto.int64_data_size() + proto.uint64_data_size();
    if (stored != element_count(dims)) {
      return fault(proto, Code::kInvalidArgument, "it has {} elements where its shape needs {}; the file is damaged",
                   stored, element_count(dims));
    }
    tensor = Tensor::allocate(dtype, dims);
    if (tensor.ok() && !copy_typed(proto, *tensor)) {
      return fault(proto, Code::kInvalidArgument, "its elements stand in the wrong field; the file is damaged");
    }
  }
  if (!tensor.ok()) {
    return tensor;
  }
  if (!is_clean(*tensor)) {
    return fault(proto, Code::kInvalidArgument, "a bool that is neither 0 nor 1; the file is damaged");
  }
  return tensor;
}

Result<Tensor> TensorReader::read_external(const onnx::TensorProto& proto, DType dtype, Dims dims, std::size_t bytes) {
  std::string location;
  std::uint64_t offset = 0, length = bytes;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") {
      location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      if (!parse_number(entry.value(), entry.key() == "offset" ? offset : length)) {
        return fault(proto, Code::kInvalidArgument, "external data: its {} '{:.40}' is no number", entry.key(),
                     entry.value());
      }
    } else if (entry.key() != "checksum") {  // which nothing writes and ONNX Runtime does not check either
      return fault(proto, Code::kUnimplemented, "external data: the key '{:.40}' is not supported", entry.key());
    }
  }
  if (location.empty() || location.front() == '/' || location.find('\0') != std::string::npos) {
    return fault(proto, Code::kPermissionDenied, "external data '{:.100}' must be a path relative to the model",
                 location);
  }
  if (length != bytes) {
    return fault(proto, Code::kInvalidArgument, "external data has {} bytes where its shape needs {}", length, bytes);
  }
  auto& file = external_[location];
  if (file == nullptr) {
    auto opened = MappedFile::open_beneath(directory_, location, limits_.external_bytes - external_bytes_);
    if (!opened.ok()) {
      return fault(proto, opened.status().code(), "{}", opened.status().message());
    }
    file = *opened;
    external_bytes_ += file->bytes().size();
  }
  const auto all = file->bytes();
  if (offset > all.size() || length > all.size() - offset) {
    return fault(proto, Code::kInvalidArgument,
                 "external data: '{:.80}' has {} bytes, not {} from {} on; it is truncated", location, all.size(),
                 length, offset);
  }
  return Tensor(dtype, std::move(dims), file, all.data() + offset, length, true);
}

}  // namespace sluice::engine
