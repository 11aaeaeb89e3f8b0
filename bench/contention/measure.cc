#include "measure.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "process.h"
#include "sluice/base/clock.h"
#include "sluice/mps.h"

namespace sluice::bench {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;
extern "C" void on_interrupt(int) { g_interrupted = 1; }

constexpr std::uint64_t kPollNs = 2 * kNanosPerMilli;
constexpr double kGraceSeconds = 10;  // real, between SIGTERM and SIGKILL

off_t size_of(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

std::string replaced(std::string text, int repeat) {
  const std::string mark = "{repeat}";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.replace(at, mark.size(), std::to_string(repeat));
  }
  return text;
}

// A job that runs, with the files it writes.
struct Running {
  const JobSpec* spec;
  Process process;
  std::string base;  // path of its files without the suffix
  off_t window_begin = 0, window_end = 0;

  std::string file(const char* suffix) const { return base + suffix; }
  bool reports() const { return size_of(file(".latency")) > 0; }
};

class RunOf {
 public:
  RunOf(const Options& options, const Machine& machine, Setup setup, const Mps& mps, int repeat)
      : options_(options), machine_(machine), setup_(setup), mps_(mps), repeat_(repeat) {}

  Status start(const std::vector<JobSpec>& jobs) {
    highest_ = jobs.front().priority;
    for (auto job = jobs.rbegin(); job != jobs.rend(); ++job) {
      if (Status s = start_one(*job); !s.ok()) return s;
      if (Status s = wait_until_ready(); !s.ok()) return s;
    }
    return {};
  }

  // Lets them run for the window. Returns its real length in seconds.
  Result<double> window(double shown_seconds) {
    std::uint64_t begin = now_ns();
    for (Running& job : running_) job.window_begin = size_of(job.file(".latency"));
    std::uint64_t end = begin + static_cast<std::uint64_t>(shown_seconds * machine_.real_per_shown * kNanosPerSecond);
    bool ended = false;
    while (!ended && now_ns() < end) {
      if (interrupted()) return Status::error(Code::kAborted, "interrupted");
      sleep_ns(kPollNs);
      for (Running& job : running_) {
        std::optional<int> code = job.process.poll();
        ended |= code.has_value();
        if (code && *code != 0) return failed(job, *code);
      }
    }
    double seconds = static_cast<double>(now_ns() - begin) / kNanosPerSecond;
    for (Running& job : running_) job.window_end = size_of(job.file(".latency"));
    return seconds;
  }

  Status end() {
    for (Running& job : running_) job.process.ask_to_end();
    for (Running& job : running_) {
      int code = job.process.wait_or_kill(kGraceSeconds);
      if (code == 128 + SIGKILL) {
        return Status::error(Code::kInternal, "%s did not end %g s after SIGTERM (%s) and was killed",
                             job.spec->name.c_str(), kGraceSeconds, setup_name(setup_));
      }
      if (code != 0 && code != 128 + SIGTERM) return failed(job, code);
    }
    return {};
  }

  // What the jobs have left in their files, in the order of `jobs`. REQUIRES: end().
  Result<std::vector<JobRun>> collect(double real_seconds) const {
    std::vector<JobRun> results;
    for (auto job = running_.rbegin(); job != running_.rend(); ++job) {
      JobRun& result = results.emplace_back();
      read_latencies(*job, &result.latencies_us);
      auto summary = nlohmann::json::parse(last_json_line(job->file(".out")), nullptr, false);
      if (summary.is_object()) {
        result.service_p50_us = number(summary, "service_p50_us");
        result.throughput_per_s = number(summary, "throughput_per_s");
      }
      if (!result.latencies_us.empty()) {
        double shown_seconds = real_seconds / machine_.real_per_shown;
        result.throughput_per_s = static_cast<double>(result.latencies_us.size()) / shown_seconds;
      }
      if (!result.throughput_per_s) {
        return Status::error(Code::kInternal,
                             "%s reported nothing (%s): it must append to SLUICE_LATENCY_FILE, or print a last line of "
                             "JSON with throughput_per_s; its output is in %s.out",
                             job->spec->name.c_str(), setup_name(setup_), job->base.c_str());
      }
      std::ifstream file(job->file(".sluice.json"));
      auto report = nlohmann::json::parse(file, nullptr, false);
      if (report.is_object()) {
        result.launches = number(report, "launches");
        result.gated = number(report, "gated");
        result.gates = number(report, "gates");
      }
    }
    return results;
  }

 private:
  static std::optional<double> number(const nlohmann::json& object, const char* key) {
    auto it = object.find(key);
    return it != object.end() && it->is_number() ? std::optional<double>(it->get<double>()) : std::nullopt;
  }

  Status start_one(const JobSpec& spec) {
    Running& job = running_.emplace_back();
    job.spec = &spec;
    job.base = options_.out + "/jobs/" + setup_name(setup_) + "-" + spec.name + "-" + std::to_string(repeat_);
    unlink(job.file(".latency").c_str());
    unlink(job.file(".sluice.json").c_str());
    Launch launch;
    launch.environment = uses_sluice(setup_) ? machine_.managed : machine_.plain;
    if (setup_ == Setup::kMps) launch.environment.merge(mps_.client_environment(spec, highest_));
    if (setup_ == Setup::kSluiceMps) launch.environment[mps::kPipeVariable] = mps_.pipe_directory();
    for (const auto& [key, value] : spec.environment) launch.environment[key] = value;
    launch.environment["SLUICE_LATENCY_FILE"] = job.file(".latency");
    launch.working_directory = spec.working_directory;
    launch.stdout_path = job.file(".out");
    launch.stderr_path = job.file(".err");
    if (uses_sluice(setup_)) {
      launch.command = {options_.sluice, "run",
                        "--priority",    std::to_string(spec.priority),
                        "--share",       std::to_string(spec.share),
                        "--name",        spec.name,
                        "--report",      job.file(".sluice.json")};
      launch.command.insert(launch.command.end(), spec.run_options.begin(), spec.run_options.end());
      if (setup_ == Setup::kSluiceMps) {
        launch.command.emplace_back("--mps");
        if (spec.sm_percentage != 0)
          launch.command.insert(launch.command.end(), {"--sm-percentage", std::to_string(spec.sm_percentage)});
      }
      launch.command.emplace_back("--");
    }
    for (const std::string& word : spec.command) launch.command.push_back(replaced(word, repeat_));
    auto process = Process::start(launch);
    if (!process.ok()) return process.status();
    job.process = std::move(*process);
    return {};
  }

  Status wait_until_ready() {
    std::uint64_t until = now_ns() + static_cast<std::uint64_t>(options_.ready_seconds * kNanosPerSecond);
    // One that never reports is taken to be ready in the end: its throughput comes from its last line.
    while (!running_.back().reports() && now_ns() < until) {
      if (interrupted()) return Status::error(Code::kAborted, "interrupted");
      for (Running& job : running_) {
        if (auto code = job.process.poll()) return failed(job, *code);
      }
      sleep_ns(kPollNs);
    }
    return {};
  }

  Status failed(const Running& job, int code) const {
    std::string said = tail_of(job.file(".err"), 3);
    return Status::error(Code::kInternal, "%s ended with exit code %d before it was measured (%s); it said:\n%s",
                         job.spec->name.c_str(), code, setup_name(setup_), said.c_str());
  }

  static void read_latencies(const Running& job, std::vector<double>* latencies) {
    std::ifstream file(job.file(".latency"));
    file.seekg(job.window_begin);
    std::string text(static_cast<std::size_t>(job.window_end - job.window_begin), '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    std::istringstream lines(text);
    for (double us = 0; lines >> us;) latencies->push_back(us);
  }

  const Options& options_;
  const Machine& machine_;
  const Setup setup_;
  const Mps& mps_;
  const int repeat_;
  std::int32_t highest_ = 0;
  std::vector<Running> running_;  // from the lowest priority to the highest
};

}  // namespace

const char* setup_name(Setup setup) {
  switch (setup) {
    case Setup::kAlone:
      return "alone";
    case Setup::kTimeSlicing:
      return "time_slicing";
    case Setup::kMps:
      return "mps";
    case Setup::kSluice:
      return "sluice";
    case Setup::kSluiceMps:
      return "sluice_mps";
  }
  return "";
}

bool interrupted() { return g_interrupted != 0; }

void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Result<Run> measure(const Options& options, const Machine& machine, Setup setup, const Mps& mps,
                    const std::vector<JobSpec>& jobs, int repeat, double seconds) {
  RunOf run(options, machine, setup, mps, repeat);
  if (Status s = run.start(jobs); !s.ok()) return s;
  std::vector<std::string> names;
  for (const JobSpec& job : jobs) names.push_back(job.name);
  TimelineSampler sampler(machine.uuid, names, machine.real_per_shown);
  if (setup == Setup::kSluice) sampler.start();
  auto real_seconds = run.window(seconds);
  Run result;
  if (setup == Setup::kSluice) result.timeline = sampler.stop();
  if (!real_seconds.ok()) return real_seconds.status();
  if (Status s = run.end(); !s.ok()) return s;
  auto collected = run.collect(*real_seconds);
  if (!collected.ok()) return collected.status();
  result.jobs = std::move(*collected);
  return result;
}

}  // namespace sluice::bench
