#include "reset_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "sluice/base/user.h"

namespace sluice::cli::doctor {
namespace {

constexpr char kName[] = "ecc-resets.jsonl";

Status system_error(const char* what, const std::string& path) {
  const Code code = errno == EACCES || errno == EPERM || errno == ELOOP ? Code::kPermissionDenied : Code::kInternal;
  return Status::error(code, "cannot %s %.160s: %s", what, path.c_str(), std::strerror(errno));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Each folder of the path that is missing, readable by its owner only.
Status make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);  // what goes wrong shows below
  }
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? Status() : system_error("make", path);
}

Status check_own(int fd, const std::string& path, mode_t kind) {
  struct stat info;
  if (fstat(fd, &info) != 0) return system_error("look at", path);
  if ((info.st_mode & S_IFMT) != kind || info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status::error(Code::kPermissionDenied,
                         "%.160s must be your own and closed to writers; mend it, or set SLUICE_STATE_DIR",
                         path.c_str());
  }
  return {};
}

}  // namespace

Result<std::string> state_directory() {
  std::string path = variable("SLUICE_STATE_DIR");
  if (path.empty() && geteuid() == 0) path = "/var/lib/sluice";
  if (path.empty() && !variable("XDG_STATE_HOME").empty()) path = variable("XDG_STATE_HOME") + "/sluice";
  if (path.empty() && !variable("HOME").empty()) path = variable("HOME") + "/.local/state/sluice";
  if (path.empty() || path[0] != '/') {
    return Status::error(Code::kFailedPrecondition, "no place for records: set SLUICE_STATE_DIR to an absolute path");
  }
  return path;
}

Result<ResetLog> ResetLog::open() {
  const Result<std::string> folder = state_directory();
  if (!folder.ok()) return folder.status();
  if (Status status = make_folders(*folder); !status.ok()) return status;
  const int directory = ::open(folder->c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (directory < 0) return system_error("open", *folder);
  ResetLog log;
  log.path_ = *folder + "/" + kName;
  Status status = check_own(directory, *folder, S_IFDIR);
  if (status.ok()) {
    log.fd_ = openat(directory, kName, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    status = log.fd_ < 0 ? system_error("open", log.path_) : check_own(log.fd_, log.path_, S_IFREG);
  }
  close(directory);
  if (!status.ok()) return status;
  return log;
}

ResetLog::ResetLog(ResetLog&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

ResetLog& ResetLog::operator=(ResetLog&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

ResetLog::~ResetLog() {
  if (fd_ >= 0) close(fd_);
}

Status ResetLog::append(nlohmann::json event) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
  event["time"] = text;
  event["user"] = user_name(getuid());
  const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const ssize_t written = write(fd_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size()) || fsync(fd_) != 0) return system_error("write", path_);
  return {};
}

}  // namespace sluice::cli::doctor
