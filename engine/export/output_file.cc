#include "export/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sluice::engine {

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
}

Status OutputFile::failed(const char* what) const {
  const int error = errno;
  const Code code = error == EACCES || error == EPERM || error == EROFS ? Code::kPermissionDenied
                    : error == ENOENT || error == ENOTDIR               ? Code::kNotFound
                    : error == ENOSPC || error == EDQUOT                ? Code::kResourceExhausted
                                                                        : Code::kInternal;
  return Status::error(code, "cannot %s '%.200s': %s", what, path_.c_str(), std::strerror(error));
}

Status OutputFile::open(const std::string& path) {
  path_ = path;
  temporary_ = path + "." + std::to_string(::getpid()) + ".part";
  descriptor_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  return descriptor_ < 0 ? failed("create") : Status();
}

Status OutputFile::write(const void* data, std::size_t bytes) {
  constexpr std::size_t kMost = 1u << 30;  // in one call
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, at, std::min(bytes, kMost));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return failed("write");
    }
    at += written;
    bytes -= static_cast<std::size_t>(written);
    size_ += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status OutputFile::commit() {
  const bool closed = ::close(descriptor_) == 0;
  descriptor_ = -1;
  if (!closed || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Status status = failed("write");
    ::unlink(temporary_.c_str());
    return status;
  }
  return {};
}

}  // namespace sluice::engine
