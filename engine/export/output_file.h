// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sluice/base/status.h"

namespace sluice::engine {

class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();  // removes what was not committed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Errors: kPermissionDenied, kNotFound (the directory), kResourceExhausted (no space), kInternal.
  Status open(const std::string& path);
  Status write(const void* data, std::size_t bytes);
  // REQUIRES: open.
  Status commit();

  std::uint64_t size() const { return size_; }

 private:
  Status failed(const char* what) const;

  std::string path_, temporary_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace sluice::engine
