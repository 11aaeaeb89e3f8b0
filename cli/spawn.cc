#include "spawn.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sluice::cli {
namespace {

struct Failure {
  int error = 0;
  bool in_folder = false;
};

std::vector<char*> arguments(const std::vector<std::string>& command) {
  std::vector<char*> result;
  for (const std::string& word : command) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

Spawned describe(const std::vector<std::string>& command, const std::string& folder, const Failure& failure) {
  Spawned result;
  if (failure.in_folder) {
    result.exit_code = kExitNotExecutable;
    result.error = "cannot enter the working directory " + folder + ": " + std::strerror(failure.error);
  } else if (failure.error == ENOENT && command[0].find('/') == std::string::npos) {
    result.exit_code = kExitNotFound;
    result.error = "command not found: " + command[0];
  } else {
    result.exit_code = failure.error == ENOENT || failure.error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
    result.error = "cannot run " + command[0] + ": " + std::strerror(failure.error);
  }
  return result;
}

}  // namespace

Spawned spawn(const std::vector<std::string>& command, Environment environment, const std::string& folder,
              const Signals* signals) {
  std::vector<char*> argv = arguments(command);
  std::vector<char*> envp = environment.pointers();
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return describe(command, folder, {errno, false});
  const pid_t pid = fork();
  if (pid < 0) {
    const Failure failure{errno, false};
    close(report[0]);
    close(report[1]);
    return describe(command, folder, failure);
  }
  if (pid == 0) {
    if (signals != nullptr) signals->restore();
    Failure failure;
    if (!folder.empty() && chdir(folder.c_str()) != 0) {
      failure = {errno, true};
    } else {
      environ = envp.data();  // execvp searches the PATH of this
      execvp(argv[0], argv.data());
      failure = {errno, false};
    }
    const ssize_t ignored = write(report[1], &failure, sizeof failure);
    static_cast<void>(ignored);
    _exit(kExitNotExecutable);
  }
  close(report[1]);
  Failure failure;
  ssize_t got;
  do {
    got = read(report[0], &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got != static_cast<ssize_t>(sizeof failure)) {  // the pipe closed on exec
    Spawned started;
    started.pid = pid;
    return started;
  }
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return describe(command, folder, failure);
}

Spawned replace_self(const std::vector<std::string>& command) {
  std::vector<char*> argv = arguments(command);
  execvp(argv[0], argv.data());
  return describe(command, "", {errno, false});
}

int shell_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace sluice::cli
