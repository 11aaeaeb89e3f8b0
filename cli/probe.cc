#include "probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sluice/base/clock.h"
#include "sluice/driver.h"

namespace sluice::cli {
namespace {

// Reads until end of file or the deadline; false for the deadline.
bool read_until(int fd, std::uint64_t deadline, std::string* text) {
  for (;;) {
    const std::uint64_t now = now_ns();
    if (now >= deadline) return false;
    pollfd ready{fd, POLLIN, 0};
    const int wait_ms = static_cast<int>((deadline - now + kNanosPerMilli - 1) / kNanosPerMilli);
    if (poll(&ready, 1, wait_ms) <= 0) continue;
    char chunk[256];
    const ssize_t got = read(fd, chunk, sizeof chunk);
    if (got == 0) return true;
    if (got > 0 && text->size() < 1024) text->append(chunk, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) return true;
  }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')).substr(0, 200); }

}  // namespace

Status test_load(const std::string& program, const std::string& shim, Environment environment,
                 std::uint64_t timeout_ns) {
  if (access(shim.c_str(), R_OK) != 0) {
    return Status::error(Code::kFailedPrecondition, "the shim %.150s is missing", shim.c_str());
  }
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return Status::error(Code::kInternal, "no pipe: %s", std::strerror(errno));
  char* argv[] = {const_cast<char*>(program.c_str()), const_cast<char*>(kProbeVerb), const_cast<char*>(shim.c_str()),
                  nullptr};
  std::vector<char*> envp = environment.pointers();
  const pid_t pid = fork();
  if (pid == 0) {
    // Its answer goes to the pipe; what the driver may print must not reach the user's streams.
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execve(argv[0], argv, envp.data());
    _exit(127);
  }
  close(out[1]);
  if (pid < 0) {
    close(out[0]);
    return Status::error(Code::kInternal, "cannot fork: %s", std::strerror(errno));
  }
  std::string text;
  const bool in_time = read_until(out[0], now_ns() + timeout_ns, &text);
  close(out[0]);
  if (!in_time) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return Status::error(Code::kDeadlineExceeded, "loading the shim did not end in time");
  if (WIFSIGNALED(status)) {
    return Status::error(Code::kFailedPrecondition, "loading the shim ended with signal %d (%s)", WTERMSIG(status),
                         strsignal(WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == 0) return {};
  const std::string reason = first_line(text);
  return Status::error(Code::kFailedPrecondition, "%s", reason.empty() ? "loading the shim failed" : reason.c_str());
}

int probe(const std::string& shim) {
  void* handle = dlopen(shim.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::printf("the shim cannot be loaded: %s\n", dlerror());
    return kExitFailed;
  }
  if (!driver::is_shim(handle)) {
    std::printf("%s is not Sluice's shim\n", shim.c_str());
    return kExitFailed;
  }
  // Works before cuInit and in every driver: it shows that the shim reaches the driver without touching a device.
  using Version = int (*)(int*);
  const Version version = driver::symbol<Version>(handle, "cuDriverGetVersion");
  int number = 0;
  const int result = version != nullptr ? version(&number) : -1;
  if (result != 0) {
    std::printf("the shim cannot reach the driver (cuDriverGetVersion returned %d)\n", result);
    return kExitFailed;
  }
  std::fflush(stdout);
  _exit(kExitOk);  // the driver's own exit handlers are none of our business
}

}  // namespace sluice::cli
