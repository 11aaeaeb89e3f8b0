#include "import/mapped_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sluice::engine {
namespace {

Status open_error(const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound
                    : error == EACCES || error == EPERM ? Code::kPermissionDenied
                                                        : Code::kInvalidArgument;
  return Status::error(code, "cannot open '%.150s': %s", path.c_str(), std::strerror(error));
}

// For kernels before 5.6: resolves both paths and compares them.
int open_resolved(const std::string& directory, const std::string& relative) {
  const std::unique_ptr<char, decltype(&std::free)> home(realpath(directory.c_str(), nullptr), std::free);
  const std::unique_ptr<char, decltype(&std::free)> file(realpath((directory + "/" + relative).c_str(), nullptr),
                                                         std::free);
  if (home == nullptr || file == nullptr) {
    return -1;
  }
  const std::string prefix = std::string(home.get()) == "/" ? "/" : std::string(home.get()) + "/";
  if (std::strncmp(file.get(), prefix.c_str(), prefix.size()) != 0) {
    errno = EXDEV;
    return -1;
  }
  return ::open(file.get(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::map(int descriptor, const std::string& path,
                                                          std::uint64_t limit) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status::error(Code::kInvalidArgument, "'%.150s' is not a regular file", path.c_str());
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > limit) {
    return Status::error(Code::kResourceExhausted, "'%.120s' has %llu bytes, over the limit of %llu", path.c_str(),
                         static_cast<unsigned long long>(size), static_cast<unsigned long long>(limit));
  }
  if (size == 0) {
    return std::shared_ptr<const MappedFile>(new MappedFile(nullptr, 0));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) {
    return Status::error(Code::kResourceExhausted, "cannot map '%.150s': %s", path.c_str(), std::strerror(errno));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const std::byte*>(data), size));
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path, std::uint64_t limit) {
  // O_NONBLOCK: a pipe must not hold us; it is refused as no regular file.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return open_error(path, errno);
  }
  auto file = map(descriptor, path, limit);
  close(descriptor);
  return file;
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open_beneath(const std::string& directory,
                                                                   const std::string& relative, std::uint64_t limit) {
  int descriptor = -1;
  int error = 0;
  const int home = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (home >= 0) {
    open_how how{};
    how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    descriptor = static_cast<int>(syscall(SYS_openat2, home, relative.c_str(), &how, sizeof(how)));
    error = errno;
    close(home);
    if (descriptor < 0 && (error == ENOSYS || error == EPERM)) {  // EPERM: what some containers say for ENOSYS
      descriptor = open_resolved(directory, relative);
      error = errno;
    }
  } else {
    error = errno;
  }
  if (descriptor < 0 && error == EXDEV) {
    return Status::error(Code::kPermissionDenied,
                         "external data '%.150s' leaves the model's directory; move it beside the model",
                         relative.c_str());
  }
  if (descriptor < 0) {
    return open_error(directory + "/" + relative, error);
  }
  auto file = map(descriptor, relative, limit);
  close(descriptor);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    munmap(const_cast<std::byte*>(data_), size_);
  }
}

}  // namespace sluice::engine
