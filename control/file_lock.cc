#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sluice/base/sharing.h"
#include "sluice/control.h"

namespace sluice::control {
namespace {

constexpr std::uint64_t kRetryNs = 2 * kNanosPerMilli;
constexpr int kAttempts = 1000;  // lost races between creating and removing

// Whether `fd` is still what `path` names: its holder may have removed the file while we waited.
bool same_file(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// Returns -1 with errno set.
int open_or_create(const std::string& path, const Sharing& sharing) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    int fd = open(path.c_str(), kFlags);
    if (fd >= 0 || errno != ENOENT) return fd;
    fd = open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0600);
    if (fd < 0 && errno == EEXIST) continue;  // made by another meanwhile, or removed just before
    if (fd >= 0 && !share_file(fd, sharing, path.c_str()).ok()) {
      close(fd);
      errno = EPERM;
      return -1;
    }
    return fd;
  }
  return -1;
}

Status open_error(const std::string& path, int error) {
  const Code code = error == ENOENT                                       ? Code::kNotFound
                    : error == EACCES || error == EPERM || error == ELOOP ? Code::kPermissionDenied
                    : error == ENOSPC                                     ? Code::kResourceExhausted
                                                                          : Code::kInternal;
  return Status::error(code, "cannot lock %.160s: %s", path.c_str(), std::strerror(error));
}

}  // namespace

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this != &other) {
    release();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

FileLock::~FileLock() { release(); }

void FileLock::release() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<FileLock> FileLock::acquire(const std::string& path, Mode mode, std::uint64_t timeout_ns) {
  const std::uint64_t deadline = now_ns() + timeout_ns;
  const int operation = (mode == Mode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  Sharing sharing;
  if (!sharing_around(path.c_str(), &sharing).ok()) sharing.by_group = false;
  while (true) {
    FileLock lock;
    lock.fd_ = open_or_create(path, sharing);
    if (lock.fd_ < 0) {
      // Another member has made it, and its umask is still in force.
      if (errno != EACCES || !sharing.by_group || now_ns() >= deadline) return open_error(path, errno);
      sleep_ns(kRetryNs);
      continue;
    }
    lock.path_ = path;
    if (flock(lock.fd_, operation) == 0) {
      if (same_file(lock.fd_, path)) return lock;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return open_error(path, errno);
    const std::uint64_t now = now_ns();
    if (now >= deadline)
      return Status::error(Code::kDeadlineExceeded, "%.160s is held by another process", path.c_str());
    sleep_ns(std::min(kRetryNs, deadline - now));
  }
}

void FileLock::write(std::string_view text) {
  // The content only informs people who look; the lock itself is what counts.
  if (ftruncate(fd_, 0) != 0 || pwrite(fd_, text.data(), text.size(), 0) < 0) return;
}

bool FileLock::has_file() const { return same_file(fd_, path_); }

void FileLock::remove_file() {
  if (has_file()) unlink(path_.c_str());
}

Result<FileLock> hold_boards(const std::string& runtime_dir) {
  return FileLock::acquire(runtime_dir + "/" + kBoardsLockName, FileLock::Mode::kShared, 2 * kNanosPerSecond);
}

}  // namespace sluice::control
