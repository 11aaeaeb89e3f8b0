#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice::cli {

Result<std::size_t> array_bytes(engine::DType dtype, const engine::Dims& dims) {
  if (dims.size() > 32) {
    return Status::error(Code::kInvalidArgument, "%zu dimensions; 32 are possible", dims.size());
  }
  std::uint64_t bytes = engine::dtype_bytes(dtype);
  bool empty = false;
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      return Status::error(Code::kInvalidArgument, "a dimension of %lld", static_cast<long long>(dim));
    }
    empty = empty || dim == 0;
  }
  for (const std::int64_t dim : dims) {
    if (!empty && static_cast<std::uint64_t>(dim) > kArrayBytesLimit / bytes) {
      return Status::error(Code::kResourceExhausted, "the shape %s is over the limit of %llu bytes",
                           shape_text(dims).c_str(), static_cast<unsigned long long>(kArrayBytesLimit));
    }
    bytes *= static_cast<std::uint64_t>(empty ? 1 : dim);
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

std::string shape_text(const engine::Dims& dims) {
  return dims.empty() ? "scalar" : fmt::format("{}", fmt::join(dims, "x"));
}

std::string shape_text(const engine::TensorSpec& spec) {
  if (!spec.has_rank) {
    return "any shape";
  }
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < spec.dims.size(); ++i) {
    const bool named = i < spec.symbols.size() && !spec.symbols[i].empty();
    parts.push_back(spec.dims[i] >= 0 ? std::to_string(spec.dims[i]) : named ? spec.symbols[i] : "?");
  }
  return parts.empty() ? "scalar" : fmt::format("{}", fmt::join(parts, "x"));
}

}  // namespace sluice::cli
