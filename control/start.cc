#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "sluice/base/sharing.h"
#include "sluice/control.h"

extern char** environ;

namespace sluice::control {
namespace {

constexpr std::uint64_t kPollNs = 2 * kNanosPerMilli;
constexpr std::uint64_t kHelloNs = 500 * kNanosPerMilli;

// What belongs to one job or one program must not live on in a daemon that serves all of them.
bool belongs_to_a_job(std::string_view variable) {
  for (const char* name : {"SLUICE_BOARDS=", "SLUICE_JOB=", "SLUICE_BATCH_HINT_FILE=", "SLUICE_LATENCY_FILE=",
                           "SLUICE_RUNTIME_DIR=", "LD_PRELOAD=", "CUDA_MPS_PIPE_DIRECTORY="}) {
    if (variable.starts_with(name)) return true;
  }
  return false;
}

// Everything the new process needs, made before fork: after it only async-signal-safe calls are allowed.
struct Prepared {
  std::vector<std::string> texts;
  std::vector<char*> argv, env;
  std::string log;
  const char* program;
};

void prepare(const DaemonStart& start, Prepared& out) {
  out.program = start.program.c_str();
  out.log = start.runtime_dir + "/" + kLogName;
  out.texts = {start.program, "--foreground"};
  out.texts.insert(out.texts.end(), start.args.begin(), start.args.end());
  out.texts.push_back("SLUICE_RUNTIME_DIR=" + start.runtime_dir);
  for (std::size_t i = 0; i + 1 < out.texts.size(); ++i) out.argv.push_back(out.texts[i].data());
  out.argv.push_back(nullptr);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!belongs_to_a_job(*variable)) out.env.push_back(*variable);
  }
  out.env.push_back(out.texts.back().data());
  out.env.push_back(nullptr);
}

[[noreturn]] void become_daemon(const Prepared& prepared, int report) {
  setsid();
  const pid_t again = fork();  // no session leader: it can never get a controlling terminal
  if (again != 0) _exit(again < 0 ? 1 : 0);
  umask(077);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // The caller may have closed its own 0, 1 and 2: ours are moved out of the way before those are filled.
  constexpr int kFirst = 10;
  report = fcntl(report, F_DUPFD, kFirst);
  const int null = fcntl(open("/dev/null", O_RDWR), F_DUPFD, kFirst);
  int log = fcntl(open(prepared.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600), F_DUPFD, kFirst);
  if (log < 0) log = null;
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  dup2(report, 3);
  fcntl(3, F_SETFD, FD_CLOEXEC);
  if (syscall(SYS_close_range, 4u, ~0u, 0u) != 0) {
    for (int fd = 4; fd < 4096; ++fd) close(fd);
  }
  if (chdir("/") != 0) _exit(1);
  execve(prepared.program, prepared.argv.data(), prepared.env.data());
  const int error = errno;
  if (write(3, &error, sizeof error) < 0) _exit(1);
  _exit(1);
}

// Starts the program; ok once it is running, which does not mean that it answers yet.
Status spawn(const DaemonStart& start) {
  Prepared prepared;
  prepare(start, prepared);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return Status::error(Code::kInternal, "pipe: %s", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) become_daemon(prepared, report[1]);
  const int fork_error = errno;
  close(report[1]);
  if (child < 0) {
    close(report[0]);
    return Status::error(Code::kInternal, "fork: %s", std::strerror(fork_error));
  }
  int error = 0;
  ssize_t got;
  do {
    got = read(report[0], &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (got > 0) {
    return Status::error(Code::kUnavailable, "cannot start the daemon %.160s: %s", start.program.c_str(),
                         std::strerror(error));
  }
  return {};
}

// True while some process holds the daemon lock: one runs, is starting, or is going.
bool daemon_lock_taken(const std::string& runtime_dir) {
  const std::string path = runtime_dir + "/" + kDaemonLockName;
  if (access(path.c_str(), F_OK) != 0) return false;
  const auto probe = FileLock::acquire(path, FileLock::Mode::kShared, 0);
  return !probe.ok() && probe.status().code() == Code::kDeadlineExceeded;
}

}  // namespace

Result<Json> ensure_daemon(const DaemonStart& start) {
  const std::uint64_t deadline = now_ns() + start.timeout_ns;
  constexpr std::uint64_t kSpawnAgainNs = 500 * kNanosPerMilli;
  std::uint64_t spawned_ns = 0;
  Status last;
  Sharing sharing;
  const bool may_start = start.for_group || !sharing_of(start.runtime_dir.c_str(), &sharing).ok() || !sharing.by_group;
  while (true) {
    Result<Json> hello = request(start.runtime_dir, {{"op", "hello"}}, std::min(kHelloNs, start.timeout_ns));
    if (hello.ok() || hello.status().code() == Code::kPermissionDenied ||
        hello.status().code() == Code::kFailedPrecondition) {
      return hello;
    }
    last = hello.status();
    if (last.code() == Code::kUnavailable && !may_start) {
      return Status::error(Code::kUnavailable, "none serves %.120s: its administrator starts sluiced --group",
                           start.runtime_dir.c_str());
    }
    const std::uint64_t now = now_ns();
    if (now >= deadline) break;
    // A daemon on its way out may have been in the way of the one started first, so one is started again then.
    const bool may_spawn = spawned_ns == 0 || now - spawned_ns >= kSpawnAgainNs;
    if (last.code() == Code::kUnavailable && may_spawn && !daemon_lock_taken(start.runtime_dir)) {
      if (Status status = spawn(start); !status.ok()) return status;
      spawned_ns = now;
    }
    sleep_ns(kPollNs);
  }
  return Status::error(Code::kDeadlineExceeded, "the daemon was started but does not answer (%.160s)", last.message());
}

}  // namespace sluice::control
