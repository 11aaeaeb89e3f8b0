#include "npy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace sluice::cli {
namespace {

using engine::DType;

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kHeaderLimit = 1u << 16;

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"|b1", DType::kBool},  {"|u1", DType::kUint8},   {"|i1", DType::kInt8},  {"<u2", DType::kUint16},
    {"<i2", DType::kInt16}, {"<u4", DType::kUint32},  {"<i4", DType::kInt32}, {"<u8", DType::kUint64},
    {"<i8", DType::kInt64}, {"<f2", DType::kFloat16}, {"<f4", DType::kFloat}, {"<f8", DType::kDouble},
};

Status damaged(const char* what) { return Status::error(Code::kInvalidArgument, "no .npy file: %s", what); }

// What stands behind 'key': in the header, a Python dictionary.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) {
    return {};
  }
  header.remove_prefix(at + key.size() + 3);
  const std::size_t begin = header.find_first_not_of(' ');
  return begin == std::string_view::npos ? std::string_view() : header.substr(begin);
}

Result<engine::Dims> parse_shape(std::string_view text) {
  const std::size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string_view::npos) {
    return damaged("its header has no shape");
  }
  text = text.substr(1, end - 1);
  engine::Dims dims;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) {
      return dims;
    }
    std::int64_t dim = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (error != std::errc()) {
      return damaged("its shape is no list of numbers");
    }
    dims.push_back(dim);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (!text.empty() && text[0] != ',') {
      return damaged("its shape is no list of numbers");
    }
    text.remove_prefix(text.empty() ? 0 : 1);
  }
}

Status parse_header(std::string_view header, Array& array) {
  const std::string_view descr = value_of(header, "descr");
  const std::size_t quote = descr.empty() || descr[0] != '\'' ? std::string_view::npos : descr.find('\'', 1);
  if (quote == std::string_view::npos) {
    return damaged("its header names no element type (records are not supported)");
  }
  const std::string_view type = descr.substr(1, quote - 1);
  for (const auto& [name, dtype] : kTypes) {
    if (name == type || (name[0] == '|' && name.substr(1) == type.substr(std::min<std::size_t>(1, type.size())))) {
      array.dtype = dtype;
    }
  }
  if (array.dtype == DType::kUndefined) {
    return Status::error(Code::kInvalidArgument, "the element type '%.*s' is not supported; use astype()",
                         static_cast<int>(std::min<std::size_t>(type.size(), 40)), type.data());
  }
  if (!value_of(header, "fortran_order").starts_with("False")) {
    return Status::error(Code::kInvalidArgument, "saved in Fortran order; save numpy.ascontiguousarray of it");
  }
  auto dims = parse_shape(value_of(header, "shape"));
  if (dims.ok()) {
    array.dims = std::move(*dims);
  }
  return dims.status();
}

Status in_file(const std::string& path, const Status& status) {
  return Status::error(status.code(), "%s: %s", path.c_str(), status.message());
}

}  // namespace

Result<Array> read_npy(const ReadBytes& read, std::uint64_t size) {
  char start[12];
  if (read(start, 10) != 10 || std::string_view(start, kMagic.size()) != kMagic) {
    return damaged("it does not begin as one");
  }
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(start[i])); };
  std::size_t begin = 10, length = byte(8) | byte(9) << 8;
  if (byte(6) >= 2) {
    if (byte(6) > 3 || read(start + 10, 2) != 2) {
      return damaged("a version that is not known");
    }
    begin = 12;
    length |= byte(10) << 16 | byte(11) << 24;
  }
  if (length > kHeaderLimit) {
    return damaged("its header is over 64 KiB");
  }
  std::string header(length, '\0');
  if (read(header.data(), length) != length) {
    return damaged("it ends within its header");
  }
  Array array;
  if (Status status = parse_header(header, array); !status.ok()) {
    return status;
  }
  auto bytes = array_bytes(array.dtype, array.dims);
  if (!bytes.ok()) {
    return bytes.status();
  }
  if (size < begin + length || size - begin - length != *bytes) {
    return Status::error(Code::kInvalidArgument, "%s %s takes %zu bytes behind the header, and there are %lld",
                         engine::dtype_name(array.dtype), shape_text(array.dims).c_str(), *bytes,
                         static_cast<long long>(size) - static_cast<long long>(begin + length));
  }
  array.data.resize(*bytes);
  if (read(reinterpret_cast<char*>(array.data.data()), *bytes) != *bytes) {
    return damaged("it ends within its data");
  }
  return array;
}

Result<Array> read_npy_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  struct stat info;
  if (file == nullptr || fstat(fileno(file.get()), &info) != 0) {
    return Status::error(Code::kNotFound, "%s: %s", path.c_str(), std::strerror(errno));
  }
  auto array = read_npy([&](char* to, std::size_t size) { return size == 0 ? 0 : std::fread(to, 1, size, file.get()); },
                        static_cast<std::uint64_t>(info.st_size));
  return array.ok() ? std::move(array) : in_file(path, array.status());
}

Result<std::string> npy_header(engine::DType dtype, const engine::Dims& dims) {
  std::string_view type;
  for (const auto& [name, known] : kTypes) {
    if (known == dtype) {
      type = name;
    }
  }
  if (type.empty()) {
    return Status::error(Code::kUnimplemented, "NumPy has no type for %s", engine::dtype_name(dtype));
  }
  std::string shape;
  for (const std::int64_t dim : dims) {
    shape += fmt::format("{},{}", dim, dims.size() == 1 ? "" : " ");
  }
  if (dims.size() > 1) {
    shape.resize(shape.size() - 2);
  }
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  text.append(63 - (10 + text.size()) % 64, ' ');  // the data begins at a multiple of 64
  text += '\n';
  const auto length = static_cast<unsigned>(text.size());
  return std::string(kMagic) + '\x01' + '\0' + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) + text;
}

Status write_npy_file(const std::string& path, const engine::TensorView& view) {
  auto header = npy_header(view.dtype, {view.dims.begin(), view.dims.end()});
  if (!header.ok()) {
    return in_file(path, header.status());
  }
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  bool ok = file != nullptr && std::fwrite(header->data(), 1, header->size(), file) == header->size() &&
            (view.bytes == 0 || std::fwrite(view.data, 1, view.bytes, file) == view.bytes);
  const int reason = errno;
  ok = (file == nullptr || std::fclose(file) == 0) && ok;
  return ok ? Status()
            : Status::error(Code::kInvalidArgument, "cannot write %s: %s", path.c_str(), std::strerror(reason));
}

}  // namespace sluice::cli
