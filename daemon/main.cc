// sluiced, the program.
#include <fmt/format.h>
#include <limits.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "sluice/base/units.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "sluice/daemon.h"

namespace sluice::daemon {
namespace {

struct Arguments {
  bool foreground = false, allow_clock_control = false, metrics_allow_remote = false;
  std::string idle_exit, quantum, linger, group, runtime_dir, metrics;
};

void start_logging() {
  auto logger = spdlog::stderr_logger_mt("sluiced");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e sluiced[%P]: %l: %v");
  const char* level = std::getenv("SLUICE_LOG");
  // Quieter than the programs people look at: what it says is kept in a file.
  logger->set_level(level == nullptr ? spdlog::level::warn : spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

std::string own_path() {
  char path[PATH_MAX];
  const ssize_t got = readlink("/proc/self/exe", path, sizeof path);
  return got > 0 ? std::string(path, static_cast<std::size_t>(got)) : "";
}

Status fill(const Arguments& arguments, Options& options) {
  if (!arguments.group.empty()) {
    const char* set = std::getenv("SLUICE_RUNTIME_DIR");
    const bool given = set != nullptr && *set != '\0';
    const std::string directory = !arguments.runtime_dir.empty() ? arguments.runtime_dir
                                  : given                        ? set
                                                                 : board::kGroupDirectory;
    if (Status status = make_group_directory(directory, arguments.group); !status.ok()) return status;
    setenv("SLUICE_RUNTIME_DIR", directory.c_str(), 1);
    options.idle_exit_ns.reset();
  } else if (!arguments.runtime_dir.empty()) {
    setenv("SLUICE_RUNTIME_DIR", arguments.runtime_dir.c_str(), 1);
  }
  char runtime_dir[PATH_MAX];
  if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok()) return status;
  options.runtime_dir = runtime_dir;
  const auto parse = [](const std::string& text, const char* option, auto& to) -> Status {
    if (text.empty()) return {};
    const Result<std::uint64_t> value = parse_duration_ns(text);
    if (!value.ok()) return Status::error(Code::kInvalidArgument, "%s: %s", option, value.status().message());
    to = *value;
    return {};
  };
  if (Status status = parse(arguments.idle_exit, "--idle-exit", options.idle_exit_ns); !status.ok()) return status;
  if (Status status = parse(arguments.quantum, "--quantum", options.quantum_ns); !status.ok()) return status;
  if (options.quantum_ns == 0u) return Status::error(Code::kInvalidArgument, "--quantum: must be longer than nothing");
  if (arguments.linger == "auto") {
    options.linger_ns = board::kDefaultLingerNs;
  } else if (Status status = parse(arguments.linger, "--linger", options.linger_ns); !status.ok()) {
    return status;
  }
  options.metrics = arguments.metrics;
  options.metrics_allow_remote = arguments.metrics_allow_remote;
  if (Status status = check_metrics(options); !status.ok()) return status;
  // Who asks now and then must find it.
  if (!options.metrics.empty() && arguments.idle_exit.empty()) options.idle_exit_ns.reset();
  options.allow_clock_control = arguments.allow_clock_control;
  const std::string program = own_path();
  options.fallback_nvml = program.substr(0, program.rfind('/')) + "/../lib/sluice/emulator/libnvidia-ml.so.1";
  return {};
}

// Without --foreground the same program goes on in the background, and this one returns when it answers.
Status start_in_background(const Arguments& arguments, const Options& options) {
  control::DaemonStart start;
  start.for_group = !arguments.group.empty();
  start.runtime_dir = options.runtime_dir;
  start.program = own_path();
  const auto pass_on = [&](const char* option, const std::string& value) {
    if (!value.empty()) start.args.insert(start.args.end(), {option, value});
  };
  pass_on("--idle-exit", arguments.idle_exit);
  pass_on("--quantum", arguments.quantum);
  pass_on("--linger", arguments.linger);
  pass_on("--group", arguments.group);
  if (arguments.allow_clock_control) start.args.emplace_back("--allow-clock-control");
  pass_on("--metrics", arguments.metrics);
  if (arguments.metrics_allow_remote) start.args.emplace_back("--metrics-allow-remote");
  const Result<control::Json> old = control::request(options.runtime_dir, {{"op", "hello"}});
  const pid_t before = old.ok() ? old->value("pid", 0) : 0;
  const Result<control::Json> hello = control::ensure_daemon(start);
  if (!hello.ok() || arguments.metrics.empty()) return hello.status();
  const control::Json url = hello->value("metrics", control::Json());
  const bool is_new = hello->value("pid", 0) != before;
  if (!url.is_string() ||
      (!is_new && arguments.metrics != kDefaultMetrics && url != "http://" + arguments.metrics + "/")) {
    return Status::error(Code::kAlreadyExists, "a daemon serves %.120s already, without these metrics: end it first",
                         options.runtime_dir.c_str());
  }
  std::printf("metrics are at %smetrics, charts at %s\n", url.get<std::string>().c_str(),
              url.get<std::string>().c_str());
  return {};
}

int main(int argc, char** argv) {
  CLI::App app("sluiced: takes turns among Sluice's jobs of equal priority, and cleans up. `sluice run` starts it.");
  app.set_version_flag("--version", SLUICE_VERSION);
  Arguments arguments;
  app.add_flag("--foreground", arguments.foreground, "stay in this process instead of going to the background");
  app.add_option("--idle-exit", arguments.idle_exit, "leave after so long without a job or a request (default 5s)");
  app.add_option("--quantum", arguments.quantum,
                 "longest work of a lower-priority job between two gates, such as 100us (default: the board's)");
  app.add_option("--linger", arguments.linger,
                 fmt::format("how long a job keeps holding others after its last work, such as 2ms, or auto ({}us; "
                             "default: the board's)",
                             board::kDefaultLingerNs / 1000));
  app.add_option("--group", arguments.group,
                 "serve the jobs of all members of this group (a name or number), until it is told to leave");
  app.add_flag("--allow-clock-control", arguments.allow_clock_control,
               "lock a card's clocks while it is too hot; they are set free again, whatever becomes of this process");
  app.add_option(
         "--metrics", arguments.metrics,
         fmt::format("serve metrics for Prometheus and a page with charts ({}); then it does not leave when idle",
                     kDefaultMetrics))
      ->option_text("[ADDR:PORT]")
      ->expected(0, 1)
      ->default_str(kDefaultMetrics);
  app.add_flag("--metrics-allow-remote", arguments.metrics_allow_remote,
               "let --metrics listen where others than this machine reach it: they see jobs and users");
  app.add_option("--runtime-dir", arguments.runtime_dir,
                 fmt::format("where boards and socket are (default: SLUICE_RUNTIME_DIR, or /dev/shm/sluice-<uid>; with "
                             "--group {})",
                             board::kGroupDirectory));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  start_logging();
  Options options;
  Status status = fill(arguments, options);
  if (status.ok()) status = arguments.foreground ? run(options) : start_in_background(arguments, options);
  if (!status.ok()) std::fprintf(stderr, "sluiced: %s\n", status.message());
  // No device is needed here, so "unavailable" is a failure like any other.
  return status.code() == Code::kUnavailable ? kExitFailed : exit_code(status);
}

}  // namespace
}  // namespace sluice::daemon

int main(int argc, char** argv) { return sluice::daemon::main(argc, argv); }
