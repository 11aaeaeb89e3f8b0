#include "sluice/base/sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace sluice {

int file_status(int fd, struct stat* out) { return static_cast<int>(syscall(SYS_fstat, fd, out)); }

bool is_member(gid_t group) {
  if (geteuid() == 0 || getegid() == group) return true;
  gid_t groups[1024];  // with more than that the call fails: no member
  const int count = getgroups(sizeof groups / sizeof *groups, groups);
  for (int i = 0; i < count; ++i) {
    if (groups[i] == group) return true;
  }
  return false;
}

Status sharing_of(const char* directory, Sharing* out) {
  // O_PATH needs no read permission; a link is opened itself and then refused by its type.
  const int fd = open(directory, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  struct stat st;
  const bool seen = fd >= 0 && file_status(fd, &st) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!seen) {
    const Code code = error == ENOENT                     ? Code::kNotFound
                      : error == EACCES || error == EPERM ? Code::kPermissionDenied
                                                          : Code::kInternal;
    return Status::error(code, "cannot open %s: %s", directory, std::strerror(error));
  }
  if (!S_ISDIR(st.st_mode)) return Status::error(Code::kPermissionDenied, "%s is no directory", directory);
  out->owner = st.st_uid;
  out->group = st.st_gid;
  out->by_group = (st.st_mode & (S_ISGID | S_IRWXG)) == (S_ISGID | S_IRWXG) && (st.st_mode & S_IRWXO) == 0;
  if (out->by_group) {
    if (is_member(st.st_gid)) return {};
    return Status::error(Code::kPermissionDenied, "%s is for members of group %u; join it or set SLUICE_RUNTIME_DIR",
                         directory, static_cast<unsigned>(st.st_gid));
  }
  if (st.st_uid != geteuid()) {
    return Status::error(Code::kPermissionDenied, "%s belongs to user %u; remove it or set SLUICE_RUNTIME_DIR",
                         directory, static_cast<unsigned>(st.st_uid));
  }
  if ((st.st_mode & 077) != 0) {
    return Status::error(Code::kPermissionDenied, "%s is open to others (mode %03o); run chmod go-rwx on it", directory,
                         static_cast<unsigned>(st.st_mode & 0777));
  }
  return {};
}

Status sharing_around(const char* path, Sharing* out) {
  char directory[PATH_MAX];
  const char* slash = std::strrchr(path, '/');
  const int length = slash == nullptr ? 0 : static_cast<int>(slash - path);
  const int written = length == 0 ? std::snprintf(directory, sizeof directory, "%s", slash == nullptr ? "." : "/")
                                  : std::snprintf(directory, sizeof directory, "%.*s", length, path);
  if (written >= static_cast<int>(sizeof directory))
    return Status::error(Code::kInvalidArgument, "path of more than %zu bytes", sizeof directory - 1);
  return sharing_of(directory, out);
}

Status share_file(int fd, const Sharing& sharing, const char* path) {
  // The directory's set-group-ID bit has given it the group already, on every file system but odd ones.
  struct stat st;
  const bool done =
      file_status(fd, &st) == 0 &&
      (!sharing.by_group || st.st_gid == sharing.group || fchown(fd, static_cast<uid_t>(-1), sharing.group) == 0) &&
      fchmod(fd, sharing.file_mode()) == 0;
  if (done) return {};
  const int error = errno;
  return Status::error(error == EPERM || error == EACCES ? Code::kPermissionDenied : Code::kInternal,
                       "cannot set the rights of %s: %s", path, std::strerror(error));
}

}  // namespace sluice
