// A file's bytes, mapped privately and read-only. Pages are read when touched and may be dropped again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sluice/base/status.h"

namespace sluice::engine {

class MappedFile {
 public:
  // Errors: kNotFound, kPermissionDenied, kInvalidArgument (no regular file), kResourceExhausted (over `limit` bytes).
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path, std::uint64_t limit);
  // `relative` beneath `directory`, never outside of it, not even by a symbolic link.
  static Result<std::shared_ptr<const MappedFile>> open_beneath(const std::string& directory,
                                                                const std::string& relative, std::uint64_t limit);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  static Result<std::shared_ptr<const MappedFile>> map(int descriptor, const std::string& path, std::uint64_t limit);

  const std::byte* data_;
  std::size_t size_;
};

}  // namespace sluice::engine
