// The board's file: where it is, who may open it, how it comes into being.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "internal.h"
#include "sluice/base/sharing.h"

namespace sluice::board {
namespace {

constexpr char kDaemonSocket[] = "control.sock";  // of the control room
constexpr int kAttempts = 16;                     // lost races between creating, deleting and opening

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

Status system_error(const char* what, const char* path, int error) {
  switch (error) {
    case ENOENT:
      return Status::error(Code::kNotFound, "%s %s: no such file or directory", what, path);
    case EACCES:
    case EPERM:
    case EROFS:
      return Status::error(Code::kPermissionDenied, "%s %s: permission denied", what, path);
    case ELOOP:
      return Status::error(Code::kPermissionDenied, "%s %s: a symbolic link is not followed; remove it", what, path);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Status::error(Code::kResourceExhausted, "%s %s: no space; free some or set SLUICE_RUNTIME_DIR", what,
                           path);
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return Status::error(Code::kResourceExhausted, "%s %s: out of memory or file descriptors", what, path);
    default:
      return Status::error(Code::kInternal, "%s %s: error %d", what, path, error);
  }
}

// Whether the caller may trust the open board: it is the caller's alone, or its group's in a directory of that group.
// Root may also use one that is its user's alone in a directory that is: that is how a container's root finds it.
Status check_board(int fd, const char* path, off_t* size, nlink_t* links) {
  struct stat st;
  if (file_status(fd, &st) != 0) return system_error("cannot examine", path, errno);
  if (!S_ISREG(st.st_mode)) return Status::error(Code::kPermissionDenied, "%s is of an unexpected file type", path);
  *size = st.st_size;
  *links = st.st_nlink;
  const bool is_private = (st.st_mode & 077) == 0;
  if (is_private && st.st_uid == geteuid()) return {};
  Sharing around;
  const Status status = sharing_around(path, &around);
  if (status.ok() && around.by_group && (st.st_mode & 007) == 0 && st.st_gid == around.group) return {};
  if (is_private && geteuid() == 0 && !status.ok() && around.owner == st.st_uid) return {};
  if (st.st_uid != geteuid()) {
    return Status::error(Code::kPermissionDenied, "%s belongs to user %u; remove it or set SLUICE_RUNTIME_DIR", path,
                         static_cast<unsigned>(st.st_uid));
  }
  return Status::error(Code::kPermissionDenied, "%s is open to others (mode %03o); run chmod go-rwx on it", path,
                       static_cast<unsigned>(st.st_mode & 0777));
}

Result<Board*> map_fd(int fd, const char* path) {
  void* at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return system_error("cannot map", path, errno);
  return static_cast<Board*>(at);
}

// An existing board. kAborted: its name is gone already; look again.
Result<Board*> open_existing(const char* path) {
  Fd fd(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.ok()) return system_error("cannot open", path, errno);
  off_t size = 0;
  nlink_t links = 0;
  if (Status status = check_board(fd.get(), path, &size, &links); !status.ok()) return status;
  if (links == 0) return Status::error(Code::kAborted, "%s was deleted", path);
  std::uint32_t head[2] = {};
  const ssize_t got = pread(fd.get(), head, sizeof head, 0);
  if (got == static_cast<ssize_t>(sizeof head) && head[0] == kMagic && head[1] != kVersion) {
    return Status::error(Code::kFailedPrecondition,
                         "%s is of version %u, this Sluice needs %u; end the jobs of the other version, then delete it",
                         path, head[1], kVersion);
  }
  // The size is checked before anything is read through the mapping: beyond the end that would be a SIGBUS.
  if (head[0] != kMagic || size != static_cast<off_t>(sizeof(Board))) {
    return Status::error(Code::kFailedPrecondition, "%s is no board or damaged (%lld bytes, expected %zu); delete it",
                         path, static_cast<long long>(size), sizeof(Board));
  }
  Result<Board*> board = map_fd(fd.get(), path);
  if (!board.ok()) return board;
  if ((*board)->bytes != sizeof(Board) || (*board)->ready.load() != 1 || (*board)->device[63] != '\0' ||
      (*board)->device_name[63] != '\0') {
    unmap(*board);
    return Status::error(Code::kFailedPrecondition, "%s is damaged; delete it", path);
  }
  return board;
}

void fill(Board* board, const char* device, const char* device_name, bool simulated) {
  board->magic = kMagic;
  board->version = kVersion;
  board->bytes = sizeof(Board);
  snprintf(board->device, sizeof board->device, "%s", device);
  snprintf(board->device_name, sizeof board->device_name, "%s", device_name);
  board->simulated.store(simulated ? 1 : 0);
  board->quantum_ns.store(kDefaultQuantumNs);
  board->linger_ns.store(kDefaultLingerNs);
  board->next_job_id.store(1);
  for (Client& client : board->clients) client.job.store(kNoJob);
  board->ready.store(1);
}

// Space for the whole board now: writing into a hole of a full file system would be a SIGBUS later.
Status reserve(int fd, const char* path) {
  rlimit limit;
  // Beyond this limit the kernel sends a signal that ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(Board)) {
    return Status::error(Code::kResourceExhausted,
                         "cannot create %s: the file size limit (ulimit -f) is below %zu bytes", path, sizeof(Board));
  }
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, sizeof(Board));
  } while (error == EINTR);
  return error == 0 ? Status() : system_error("cannot reserve", path, error);
}

Result<Board*> fill_and_link(int fd, const char* from, const char* path, const char* device, const char* device_name,
                             bool simulated) {
  Sharing around;
  if (!sharing_around(path, &around).ok()) around.by_group = false;
  if (Status status = share_file(fd, around, path); !status.ok()) return status;
  if (Status status = reserve(fd, path); !status.ok()) return status;
  Result<Board*> board = map_fd(fd, path);
  if (!board.ok()) return board;
  fill(*board, device, device_name, simulated);
  step("create: filled");
  if (linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0) return board;
  const int error = errno;
  unmap(*board);
  if (error == EEXIST) return Status::error(Code::kAborted, "%s was created by another", path);
  return system_error("cannot create", path, error);
}

// A new board, complete before it has its name. kAborted: somebody else was faster.
Result<Board*> create(const char* path, const char* device, const char* device_name, bool simulated) {
  char directory[PATH_MAX];
  const char* slash = strrchr(path, '/');
  const int length = slash == nullptr ? 0 : static_cast<int>(slash - path);
  snprintf(directory, sizeof directory, "%.*s", length, path);
  if (slash == nullptr) snprintf(directory, sizeof directory, ".");
  char from[PATH_MAX];
  // A file without a name leaves nothing behind when its creator is killed.
  if (Fd fd(open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)); fd.ok()) {
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd.get());
    return fill_and_link(fd.get(), from, path, device, device_name, simulated);
  }
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return system_error("cannot create", path, errno);
  static std::atomic<unsigned> serial{0};
  snprintf(from, sizeof from, "%.*s.new-%d-%u", PATH_MAX - 40, path, static_cast<int>(getpid()), serial.fetch_add(1));
  Fd fd(open(from, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.ok()) return system_error("cannot create", from, errno);
  Result<Board*> board = fill_and_link(fd.get(), from, path, device, device_name, simulated);
  unlink(from);
  return board;
}

}  // namespace

namespace {

// Anybody may make a directory of that name first, in /dev/shm: a group's, or another's, is not taken for the user's
// own.
bool is_own(const Sharing& sharing) { return !sharing.by_group && sharing.owner == geteuid(); }

// The directory that nobody named: the user's own, but that of the host's group for its members, unless the user's own
// daemon runs: its jobs must go on seeing each other.
int default_directory(char* out, std::size_t bytes) {
  char own[64], socket[96];
  snprintf(own, sizeof own, "/dev/shm/sluice-%u", static_cast<unsigned>(geteuid()));
  snprintf(socket, sizeof socket, "%s/%s", own, kDaemonSocket);
  Sharing mine, group;
  const bool own_daemon = sharing_of(own, &mine).ok() && is_own(mine) && access(socket, F_OK) == 0;
  const bool joins =
      !own_daemon && sharing_of(kGroupDirectory, &group).ok() && group.by_group && group.owner == 0;  // the unit's root
  return snprintf(out, bytes, "%s", joins ? kGroupDirectory : own);
}

}  // namespace

Status runtime_directory(char* out, std::size_t bytes) {
  const char* set = getenv("SLUICE_RUNTIME_DIR");
  const bool given = set != nullptr && set[0] != '\0';
  if (given && set[0] != '/') {
    return Status::error(Code::kInvalidArgument, "SLUICE_RUNTIME_DIR is '%.100s'; it must be an absolute path", set);
  }
  const int length = given ? snprintf(out, bytes, "%s", set) : default_directory(out, bytes);
  if (length < 0 || static_cast<std::size_t>(length) >= bytes) {
    return Status::error(Code::kInvalidArgument, "SLUICE_RUNTIME_DIR is longer than %zu bytes", bytes - 1);
  }
  if (mkdir(out, 0700) != 0 && errno != EEXIST) {
    if (errno == ENOENT) {
      return Status::error(Code::kFailedPrecondition,
                           "cannot create %.120s: its parent does not exist; set SLUICE_RUNTIME_DIR to another place",
                           out);
    }
    return system_error("cannot create", out, errno);
  }
  Sharing sharing;
  if (Status status = sharing_of(out, &sharing); !status.ok() || given) return status;
  if (strcmp(out, kGroupDirectory) == 0 ? sharing.by_group && sharing.owner == 0 : is_own(sharing)) return {};
  return Status::error(Code::kPermissionDenied,
                       "%s was made by user %u for a group; remove it or set SLUICE_RUNTIME_DIR", out,
                       static_cast<unsigned>(sharing.owner));
}

Status board_path(const char* device, char* out, std::size_t bytes) {
  std::size_t length = 0;
  bool valid = device != nullptr;
  for (; valid && device[length] != '\0'; ++length) {
    const char c = device[length];
    valid = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  }
  if (!valid || length == 0 || length >= sizeof Board::device) {
    return Status::error(Code::kInvalidArgument, "'%.80s' is no GPU's UUID", device == nullptr ? "" : device);
  }
  char directory[PATH_MAX];
  if (Status status = runtime_directory(directory, sizeof directory); !status.ok()) return status;
  const int written = snprintf(out, bytes, "%s/%s.board", directory, device);
  if (written < 0 || static_cast<std::size_t>(written) >= bytes) {
    return Status::error(Code::kInvalidArgument, "SLUICE_RUNTIME_DIR is too long");
  }
  return {};
}

Result<Board*> map(const char* path, const char* create_for, const char* device_name, bool simulated) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Result<Board*> board = open_existing(path);
    if (board.ok() || board.status().code() == Code::kAborted) {
      if (board.ok()) return board;
      continue;
    }
    if (board.status().code() != Code::kNotFound || create_for == nullptr) return board;
    board = create(path, create_for, device_name, simulated);
    if (board.ok() || board.status().code() != Code::kAborted) return board;
  }
  return Status::error(Code::kAborted, "%s is created and deleted all the time; stop what deletes it", path);
}

void unmap(Board* board) { munmap(board, sizeof(Board)); }

}  // namespace sluice::board
