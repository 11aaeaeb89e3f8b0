#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "sluice/base/sharing.h"
#include "sluice/daemon.h"

namespace sluice::daemon {
namespace {

std::optional<gid_t> find_group(const std::string& name) {
  group entry;
  group* found = nullptr;
  std::vector<char> buffer(1 << 16);
  while (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE) {
    buffer.resize(2 * buffer.size());
  }
  if (found != nullptr) return entry.gr_gid;
  gid_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) return number;
  return std::nullopt;
}

Status failed(const char* what, const std::string& directory) {
  return Status::error(errno == EPERM || errno == EACCES ? Code::kPermissionDenied : Code::kInternal, "%s %s: %s", what,
                       directory.c_str(), std::strerror(errno));
}

// Nobody else can enter it before it has its group: it was made 0700, or was closed to others before.
Status hand_over(int directory, gid_t group, const std::string& name) {
  struct stat st;
  if (file_status(directory, &st) != 0) return failed("cannot examine", name);
  if (st.st_uid != geteuid()) {
    return Status::error(Code::kPermissionDenied, "%s belongs to user %u; remove it or give another --runtime-dir",
                         name.c_str(), static_cast<unsigned>(st.st_uid));
  }
  if ((st.st_mode & S_IRWXO) != 0) {
    return Status::error(Code::kFailedPrecondition, "%s is open to others (mode %03o); remove it", name.c_str(),
                         static_cast<unsigned>(st.st_mode & 0777));
  }
  constexpr mode_t kMode = S_ISGID | S_IRWXU | S_IRWXG;
  // A service manager has made it so already, and may have taken the rights to.
  if (st.st_gid != group && fchown(directory, static_cast<uid_t>(-1), group) != 0)
    return failed("cannot change the group of", name);
  if ((st.st_gid != group || (st.st_mode & 07777) != kMode) && fchmod(directory, kMode) != 0)
    return failed("cannot change the mode of", name);
  return {};
}

}  // namespace

Status make_group_directory(const std::string& directory, const std::string& group) {
  const std::optional<gid_t> number = find_group(group);
  if (!number) return Status::error(Code::kInvalidArgument, "there is no group '%.60s'", group.c_str());
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return failed("cannot create", directory);
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return failed("cannot open", directory);
  Status status = hand_over(fd, *number, directory);
  close(fd);
  return status;
}

}  // namespace sluice::daemon
