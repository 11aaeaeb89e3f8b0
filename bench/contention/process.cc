#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "sluice/base/clock.h"

extern char** environ;

namespace sluice::bench {
namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) merged.push_back(std::move(text));
  }
  for (const auto& [key, value] : changes) {
    if (!value.empty()) merged.push_back(key + "=" + value);
  }
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

bool redirect(const char* path, int flags, int target) {
  int fd = open(path, flags | O_CLOEXEC, 0644);
  return fd >= 0 && dup2(fd, target) >= 0;
}

}  // namespace

Process::~Process() {
  if (pid_ > 0 && !exit_) wait_or_kill(0);
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)), exit_(other.exit_) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(exit_, other.exit_);
  return *this;
}

Result<Process> Process::start(const Launch& launch) {
  // Everything the child needs is made before the fork: this program has threads.
  std::vector<std::string> words = launch.command;
  std::vector<std::string> variables = merged_environment(launch.environment);
  std::vector<char*> argv = pointers(words);
  std::vector<char*> envp = pointers(variables);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return Status::error(Code::kInternal, "pipe failed: %s", strerror(errno));
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // no job outlives a benchmark that was killed
    if (getppid() != parent) _exit(1);
    bool ready = redirect("/dev/null", O_RDONLY, 0) &&
                 redirect(launch.stdout_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 1) &&
                 redirect(launch.stderr_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 2) &&
                 (launch.working_directory.empty() || chdir(launch.working_directory.c_str()) == 0);
    if (ready) execvpe(argv[0], argv.data(), envp.data());
    int error = errno;
    [[maybe_unused]] ssize_t written = write(report[1], &error, sizeof error);
    _exit(127);
  }
  close(report[1]);
  if (pid < 0) {
    close(report[0]);
    return Status::error(Code::kInternal, "fork failed: %s", strerror(errno));
  }
  setpgid(pid, pid);  // as the child does: whoever comes first
  Process process;
  process.pid_ = pid;
  int error = 0;
  ssize_t got = read(report[0], &error, sizeof error);  // ends at exec
  close(report[0]);
  if (got == sizeof error) {
    return Status::error(Code::kNotFound, "cannot start %s: %s", launch.command.front().c_str(), strerror(error));
  }
  return process;
}

std::optional<int> Process::poll() {
  if (exit_ || pid_ <= 0) return exit_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return exit_;
}

void Process::ask_to_end() {
  if (!poll() && pid_ > 0) kill(pid_, SIGTERM);
}

int Process::wait_or_kill(double seconds) {
  std::uint64_t until = now_ns() + static_cast<std::uint64_t>(seconds * kNanosPerSecond);
  while (!poll() && now_ns() < until) sleep_ns(2 * kNanosPerMilli);
  if (!exit_) {
    kill(-pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    exit_ = 128 + SIGKILL;
  } else {
    kill(-pid_, SIGKILL);  // children that it left behind; the group's id is not reused while they live
  }
  return *exit_;
}

std::string last_json_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() == '{') last = std::move(line);
  }
  return last;
}

std::string tail_of(const std::string& path, int lines) {
  std::ifstream file(path);
  std::vector<std::string> all;
  for (std::string line; std::getline(file, line);) all.push_back(std::move(line));
  std::size_t begin = all.size() > static_cast<std::size_t>(lines) ? all.size() - static_cast<std::size_t>(lines) : 0;
  std::string text;
  for (std::size_t i = begin; i < all.size(); ++i) text += "  " + all[i] + "\n";
  return text;
}

}  // namespace sluice::bench
