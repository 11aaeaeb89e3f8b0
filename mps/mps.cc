#include "sluice/mps.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "internal.h"
#include "sluice/base/clock.h"
#include "sluice/base/process.h"
#include "sluice/base/user.h"

namespace sluice::mps {
namespace {

namespace fs = std::filesystem;
using control::FileLock;

constexpr std::uint64_t kAskNs = 5 * kNanosPerSecond;
constexpr std::uint64_t kStartNs = 20 * kNanosPerSecond;
constexpr std::uint64_t kQuitNs = 30 * kNanosPerSecond;
constexpr std::uint64_t kTurnNs = 60 * kNanosPerSecond;   // for one that starts or ends the daemon just now
constexpr std::uint64_t kGlanceNs = kNanosPerSecond / 2;  // for one that only looks whether it may end it
constexpr std::uint64_t kRetryNs = 20 * kNanosPerMilli;
constexpr char kUsersLock[] = "/users.lock";  // held shared by every Use

std::string last_line(const std::string& text) {
  std::size_t end = text.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1)
      .substr(0, 120);
}

// The reply to one command.
Result<std::string> ask(const std::string& pipe_directory, const std::string& command, std::uint64_t timeout_ns) {
  const Result<Answer> answer = run_control({}, command + "\n", pipe_directory, "", timeout_ns);
  if (!answer.ok()) return answer.status();
  // Some versions say so with exit code 0.
  if (answer->output.find("Cannot find MPS control daemon") != std::string::npos || answer->exit_code != 0) {
    return Status::error(Code::kNotFound, "no MPS daemon answers at %.120s: %s", pipe_directory.c_str(),
                         last_line(answer->output).c_str());
  }
  return answer->output;
}

std::string own_directory(const std::string& runtime_dir) { return runtime_dir + "/mps-" + std::to_string(geteuid()); }
std::string turn_lock_path(const std::string& runtime_dir) { return own_directory(runtime_dir) + ".lock"; }

// Another member of a group may have made it first.
Status check_own(const std::string& directory) {
  struct stat info;
  if (lstat(directory.c_str(), &info) != 0)
    return Status::error(Code::kInternal, "%.160s: %s", directory.c_str(), std::strerror(errno));
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) return {};
  return Status::error(Code::kPermissionDenied, "%.160s is not this user's alone: remove it", directory.c_str());
}

Status make_own(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::error(Code::kUnavailable, "cannot make %.160s: %s", directory.c_str(), std::strerror(errno));
  return check_own(directory);
}

// A server works for one user at a time: another's clients wait, without end, until its own are gone. Root's may be one
// that serves several.
Status check_servers(const std::vector<Server>& list, const std::string& pipe_directory) {
  for (const Server& server : list) {
    uid_t user = 0;
    if (!user_of(identity_of(server.pid), &user) || user == 0 || user == geteuid()) continue;
    return Status::error(Code::kUnavailable,
                         "the MPS daemon at %.80s serves %.40s now, and other users' programs wait until that ends; "
                         "set %s to another one",
                         pipe_directory.c_str(), user_name(user).c_str(), kPipeVariable);
  }
  return {};
}

// REQUIRES: the caller has the turn lock.
Result<Use> use_own(const std::string& directory) {
  if (Status status = make_own(directory); !status.ok()) return status;
  Use use;
  use.pipe_directory = pipe_directory_in(directory);
  use.own = true;
  Result<FileLock> lock = FileLock::acquire(directory + kUsersLock, FileLock::Mode::kShared, 0);
  if (!lock.ok()) return lock.status();
  use.lock = std::move(*lock);
  const Result<std::vector<Server>> known = servers(use.pipe_directory);
  if (known.ok()) return use;
  if (known.status().code() != Code::kNotFound) return known.status();
  if (Status status = start(directory); !status.ok()) return status;
  use.started = true;
  return use;
}

}  // namespace

std::vector<pid_t> parse_pids(std::string_view reply) {
  std::vector<pid_t> pids;
  for (std::size_t at = 0; at < reply.size();) {
    const std::size_t end = std::min(reply.find('\n', at), reply.size());
    std::string_view line = reply.substr(at, end - at);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    pid_t pid = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), pid);
    if (error == std::errc() && stop == line.data() + line.size() && pid > 0) pids.push_back(pid);
    at = end + 1;
  }
  return pids;
}

Result<std::vector<Server>> servers(const std::string& pipe_directory) {
  const Result<std::string> reply = ask(pipe_directory, "get_server_list", kAskNs);
  if (!reply.ok()) return reply.status();
  std::vector<Server> list;
  for (pid_t pid : parse_pids(*reply)) {
    const Result<std::string> clients = ask(pipe_directory, "get_client_list " + std::to_string(pid), kAskNs);
    if (!clients.ok()) return clients.status();
    list.push_back({pid, parse_pids(*clients)});
  }
  return list;
}

std::string pipe_directory_in(const std::string& directory) { return directory + "/pipe"; }

Status start(const std::string& directory) {
  const std::string pipe = pipe_directory_in(directory), log = directory + "/log";
  for (const std::string& folder : {pipe, log}) {
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return Status::error(Code::kUnavailable, "cannot make %.160s: %s", folder.c_str(), std::strerror(errno));
  }
  const std::uint64_t deadline = now_ns() + kStartNs;
  const Result<Answer> answer = run_control({"-d"}, "", pipe, log, kStartNs);
  if (!answer.ok()) return answer.status();
  if (answer->exit_code != 0) {
    return Status::error(Code::kUnavailable, "the MPS daemon did not start (exit code %d): %s", answer->exit_code,
                         last_line(answer->output).c_str());
  }
  for (;;) {
    const Result<std::vector<Server>> list = servers(pipe);
    if (list.ok() || list.status().code() != Code::kNotFound) return list.status();
    if (now_ns() >= deadline)
      return Status::error(Code::kUnavailable, "the MPS daemon was started and does not answer; see %.120s/control.log",
                           log.c_str());
    sleep_ns(kRetryNs);
  }
}

Status quit(const std::string& pipe_directory) { return ask(pipe_directory, "quit", kQuitNs).status(); }

Status terminate_client(const std::string& pipe_directory, pid_t server, pid_t client) {
  return ask(pipe_directory, "terminate_client " + std::to_string(server) + " " + std::to_string(client), kAskNs)
      .status();
}

Result<Use> use(const std::string& runtime_dir, const std::optional<std::string>& callers_directory) {
  const std::string directory = own_directory(runtime_dir);
  const std::string candidate = callers_directory.value_or(kDefaultPipeDirectory);
  std::error_code error;
  if (candidate != pipe_directory_in(directory) && !candidate.empty() && fs::is_directory(candidate, error)) {
    const Result<std::vector<Server>> list = servers(candidate);
    if (list.ok()) {
      if (Status status = check_servers(*list, candidate); !status.ok()) return status;
      Use use;
      use.pipe_directory = candidate;
      return use;
    }
    if (list.status().code() != Code::kNotFound) return list.status();
  }
  Result<FileLock> turn = FileLock::acquire(turn_lock_path(runtime_dir), FileLock::Mode::kExclusive, kTurnNs);
  if (!turn.ok()) return turn.status();
  const bool is_new = !has_own(runtime_dir);
  Result<Use> own = use_own(directory);
  if (!own.ok() && is_new) {  // nothing may be left of what did not start
    static_cast<void>(quit(pipe_directory_in(directory)).ok());
    fs::remove_all(directory, error);
    turn->remove_file();
  }
  return own;
}

bool has_own(const std::string& runtime_dir) {
  struct stat info;
  return lstat(own_directory(runtime_dir).c_str(), &info) == 0;
}

Result<End> end_unused(const std::string& runtime_dir) {
  const std::string directory = own_directory(runtime_dir);
  if (!has_own(runtime_dir)) return End::kNothing;
  if (Status status = check_own(directory); !status.ok()) return status;
  Result<FileLock> turn = FileLock::acquire(turn_lock_path(runtime_dir), FileLock::Mode::kExclusive, kGlanceNs);
  if (!turn.ok()) return turn.status().code() == Code::kDeadlineExceeded ? Result<End>(End::kInUse) : turn.status();
  if (!has_own(runtime_dir)) {  // ended just now, by another
    turn->remove_file();
    return End::kNothing;
  }
  const Result<FileLock> users = FileLock::acquire(directory + kUsersLock, FileLock::Mode::kExclusive, 0);
  if (!users.ok()) return users.status().code() == Code::kDeadlineExceeded ? Result<End>(End::kInUse) : users.status();
  const std::string pipe = pipe_directory_in(directory);
  if (named_by_a_process(pipe)) return End::kInUse;
  const Result<std::vector<Server>> list = servers(pipe);
  if (list.ok()) {
    for (const Server& server : *list) {
      if (!server.clients.empty()) return End::kInUse;  // one that has overwritten its environment, for its title
    }
    if (Status status = quit(pipe); !status.ok() && status.code() != Code::kNotFound) return status;
  } else if (list.status().code() != Code::kNotFound) {
    return list.status();
  }
  std::error_code error;
  fs::remove_all(directory, error);
  if (error)
    return Status::error(Code::kInternal, "cannot remove %.160s: %s", directory.c_str(), error.message().c_str());
  turn->remove_file();
  return End::kEnded;
}

}  // namespace sluice::mps
