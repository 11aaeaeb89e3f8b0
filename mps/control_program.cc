#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>

#include "internal.h"
#include "sluice/base/clock.h"
#include "sluice/mps.h"

extern char** environ;

namespace sluice::mps {
namespace {

constexpr char kProgram[] = "nvidia-cuda-mps-control";
constexpr std::uint64_t kPollNs = 2 * kNanosPerMilli;
constexpr std::size_t kMostOutput = 65536;
constexpr std::string_view kLibraryPath = "LD_LIBRARY_PATH=";

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return text.starts_with(beginning); });
}

// A list of folders without those of Sluice's libraries: the server must get the driver itself.
std::string without_shim(std::string_view list) {
  std::string kept;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(':', at), list.size());
    const std::string_view folder = list.substr(at, end - at);
    if (!folder.ends_with("/sluice/shim") && !folder.ends_with("/sluice/limit"))
      kept += (kept.empty() ? "" : ":") + std::string(folder);
    at = end + 1;
  }
  return kept;
}

std::vector<std::string> environment_for(const std::string& pipe_directory, const std::string& log_directory) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (starts_with_any(text, {"SLUICE_BOARDS=", "SLUICE_JOB=", "LD_PRELOAD=", "CUDA_VISIBLE_DEVICES=", "CUDA_MPS_"}))
      continue;
    if (text.starts_with(kLibraryPath)) {
      const std::string folders = without_shim(text.substr(kLibraryPath.size()));
      if (!folders.empty()) entries.push_back(std::string(kLibraryPath) + folders);
      continue;
    }
    entries.emplace_back(text);
  }
  entries.push_back(std::string(kNoClientVariable) + "=1");
  entries.push_back(std::string(kPipeVariable) + "=" + pipe_directory);
  if (!log_directory.empty()) entries.push_back(std::string(kLogVariable) + "=" + log_directory);
  return entries;
}

// A file without a name. A daemon that keeps it open as its output makes nobody wait, as a pipe would.
class Memory {
 public:
  Memory() : fd_(memfd_create("sluice-mps", MFD_CLOEXEC)) {}
  ~Memory() {
    if (fd_ >= 0) close(fd_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int fd() const { return fd_; }
  bool fill(const std::string& text) const {
    return write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && lseek(fd_, 0, SEEK_SET) == 0;
  }
  std::string text() const {
    std::string all(kMostOutput, '\0');
    const ssize_t got = pread(fd_, all.data(), all.size(), 0);
    all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return all;
  }

 private:
  const int fd_;
};

int spawn(const std::vector<std::string>& options, std::vector<std::string> environment, const Memory& in,
          const Memory& out, pid_t* pid) {
  std::vector<char*> argv = {const_cast<char*>(kProgram)}, envp;
  for (const std::string& option : options) argv.push_back(const_cast<char*>(option.c_str()));
  argv.push_back(nullptr);
  for (std::string& entry : environment) envp.push_back(entry.data());
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.fd(), STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // a daemon would keep the caller's pipes open
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A session of its own: a Ctrl-C meant for the job must not end the daemon of all.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(pid, kProgram, &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

bool names(const std::string& environment, const std::string& variable, const std::string& value) {
  const std::string entry = variable + "=" + value + '\0';
  const std::size_t at = environment.find(entry);
  return at != std::string::npos && (at == 0 || environment[at - 1] == '\0');
}

}  // namespace

Result<Answer> run_control(const std::vector<std::string>& options, const std::string& commands,
                           const std::string& pipe_directory, const std::string& log_directory,
                           std::uint64_t timeout_ns) {
  const Memory in, out;
  if (in.fd() < 0 || out.fd() < 0 || !in.fill(commands))
    return Status::error(Code::kInternal, "no memory file: %s", std::strerror(errno));
  pid_t pid = 0;
  const int error = spawn(options, environment_for(pipe_directory, log_directory), in, out, &pid);
  if (error == ENOENT) {
    return Status::error(Code::kUnavailable, "MPS needs %s, which is not in PATH; it comes with the NVIDIA driver",
                         kProgram);
  }
  if (error != 0) return Status::error(Code::kUnavailable, "cannot run %s: %s", kProgram, std::strerror(error));
  const std::uint64_t deadline = now_ns() + timeout_ns;
  int status = 0;
  for (;;) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid) break;
    if (got < 0 && errno == ECHILD) {  // the caller ignores SIGCHLD, so that its code is lost; its words are not
      status = 0;
      break;
    }
    if (now_ns() >= deadline) {
      kill(pid, SIGKILL);
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      return Status::error(Code::kDeadlineExceeded, "%s did not answer within %d s", kProgram,
                           static_cast<int>(timeout_ns / kNanosPerSecond));
    }
    sleep_ns(kPollNs);
  }
  return Answer{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), out.text()};
}

bool named_by_a_process(const std::string& pipe_directory) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (folder == nullptr) return false;
  while (const dirent* entry = readdir(folder.get())) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == getpid()) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    const std::string environment(std::istreambuf_iterator<char>(file), {});
    if (names(environment, kPipeVariable, pipe_directory) && !names(environment, kNoClientVariable, "1")) return true;
  }
  return false;
}

}  // namespace sluice::mps
