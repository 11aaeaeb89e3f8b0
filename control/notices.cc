#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sluice/control.h"

namespace sluice::control {
namespace {

constexpr std::size_t kMostBytes = 512;
constexpr mode_t kMode = 0644;  // who may enter the directory may read it

Status failed(const std::string& path) {
  const int error = errno;
  const Code code = error == EACCES || error == EPERM ? Code::kPermissionDenied : Code::kInternal;
  return Status::error(code, "%.200s: %s", path.c_str(), std::strerror(error));
}

}  // namespace

Status write_notice(const std::string& runtime_dir, const std::string& name, const std::string& text) {
  const std::string path = runtime_dir + "/" + name, unfinished = path + ".new";
  unlink(unfinished.c_str());  // of a writer that was killed
  const int fd = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode);
  if (fd < 0) return failed(unfinished);
  const std::string line = text.substr(0, kMostBytes - 1) + "\n";
  const bool written =
      fchmod(fd, kMode) == 0 && write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  close(fd);
  if (written && rename(unfinished.c_str(), path.c_str()) == 0) return {};
  const Status status = failed(path);
  unlink(unfinished.c_str());
  return status;
}

std::optional<std::string> read_notice(const std::string& runtime_dir, const std::string& name) {
  const int fd = open((runtime_dir + "/" + name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat file, directory;
  const bool told_by_the_owner = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
                                 stat(runtime_dir.c_str(), &directory) == 0 &&
                                 (file.st_uid == directory.st_uid || file.st_uid == 0);
  char text[kMostBytes];
  const ssize_t got = told_by_the_owner ? read(fd, text, sizeof text) : -1;
  close(fd);
  if (got < 0) return std::nullopt;
  const std::string whole(text, static_cast<std::size_t>(got));
  return whole.substr(0, whole.find('\n'));
}

void remove_notice(const std::string& runtime_dir, const std::string& name) {
  unlink((runtime_dir + "/" + name).c_str());
}

std::vector<std::string> notices(const std::string& runtime_dir, const std::string& prefix) {
  std::vector<std::string> names;
  DIR* directory = opendir(runtime_dir.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) names.emplace_back(entry->d_name);
  }
  closedir(directory);
  return names;
}

}  // namespace sluice::control
