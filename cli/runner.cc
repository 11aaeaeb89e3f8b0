#include "runner.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "installation.h"
#include "job_process.h"
#include "machine.h"
#include "output.h"
#include "probe.h"
#include "signals.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "spawn.h"
#include "summary.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t kProbeTimeoutNs = 5 * kNanosPerSecond;
constexpr std::uint64_t kKeepDaemonNs = 500 * kNanosPerMilli;  // signals wait so long at most
constexpr std::uint64_t kSecondLookNs = 250 * kNanosPerMilli;

bool disabled() {
  const char* value = std::getenv("SLUICE_DISABLE");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

class Runner {
 public:
  Runner(std::vector<JobRequest> requests, const RunOptions& options) : options_(options) {
    for (JobRequest& request : requests) jobs_.emplace_back(std::move(request));
  }

  int run() {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> report(nullptr, &std::fclose);
    if (!options_.report.empty()) {
      report.reset(std::fopen(options_.report.c_str(), "we"));
      if (report == nullptr) {
        say("run: cannot write the report " + options_.report + ": " + std::strerror(errno));
        return kExitUsage;
      }
    }
    if (Status status = prepare(); !status.ok()) return fail("run", status);

    Signals signals;
    for (JobProcess& job : jobs_) {
      if (job.start(environment_of(job), signals)) continue;
      job.set_slots(JobSlots());
    }
    loop(signals);

    nlohmann::json all = nlohmann::json::array();
    for (const JobProcess& job : jobs_) {
      const JobOutcome outcome = job.outcome(simulated());
      if (!options_.quiet && outcome.id != 0) say(summary_line(outcome));
      all.push_back(outcome_json(outcome));
    }
    if (report != nullptr) {
      const nlohmann::json whole = options_.as_list ? nlohmann::json{{"jobs", all}} : all[0];
      const std::string text = whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      if (std::fwrite(text.data(), 1, text.size(), report.get()) != text.size() || std::fflush(report.get()) != 0) {
        say("run: cannot write the report " + options_.report + ": " + std::strerror(errno));
      }
    }
    for (const JobProcess& job : jobs_) {
      if (job.exit_code() != 0) return job.exit_code();
    }
    return kExitOk;
  }

 private:
  bool simulated() const { return machine_ && machine_->simulated(); }

  void note(const std::string& text) const {
    if (!options_.quiet) say(text);
  }

  void bypass_all(const std::string& reason) {
    for (JobProcess& job : jobs_) job.set_bypass(reason);
    note("running without Sluice: " + reason);
  }

  // Everything before the first command starts. An error means that the request itself cannot be met.
  Status prepare() {
    if (disabled()) {
      for (JobProcess& job : jobs_) job.set_bypass("SLUICE_DISABLE is 1");
      return {};
    }
    Result<Machine> machine = Machine::look(installation_);
    if (!machine.ok()) {
      for (const JobProcess& job : jobs_) {
        if (job.request().gpu.kind == GpuRequest::Kind::kList) return machine.status();
      }
      bypass_all(machine.status().message());
      return {};
    }
    machine_ = std::move(*machine);
    if (machine_->substituted()) {
      note("no NVIDIA driver found; using the simulated " + machine_->gpus().front().name);
    }
    std::vector<Machine::Choice> choices;
    for (JobProcess& job : jobs_) {
      Result<Machine::Choice> choice = machine_->choose(job.request(), own_environment_);
      if (!choice.ok() && choice.status().code() == Code::kNotFound) {
        bypass_all(choice.status().message());
        return {};
      }
      if (!choice.ok()) return choice.status();
      machine_->count_job(*choice, job.request().priority);
      std::vector<std::string> uuids;
      for (std::size_t at : choice->gpus) uuids.push_back(machine_->gpus()[at].uuid);
      job.set_devices(uuids);
      choices.push_back(std::move(*choice));
    }
    if (Status status = join(choices); !status.ok()) bypass_all(status.message());
    return {};
  }

  // Takes the jobs' places on the boards. An error is a reason to run without Sluice.
  Status join(const std::vector<Machine::Choice>& choices) {
    if (installation_.shim_dir.find_first_of(":;") != std::string::npos) {
      return Status::error(Code::kFailedPrecondition,
                           "the installation's path holds a : or ;, which no library path can");
    }
    char runtime_dir[PATH_MAX];
    if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok()) return status;
    const Status loaded = test_load(installation_.program, installation_.shim_dir + "/libcuda.so.1",
                                    shimmed(own_environment_), kProbeTimeoutNs);
    if (!loaded.ok()) return loaded;

    // Held until the slots are taken: no daemon removes a board or leaves meanwhile.
    Result<control::FileLock> lock = control::hold_boards(runtime_dir);
    if (!lock.ok()) return lock.status();
    daemon_.runtime_dir = runtime_dir;
    daemon_.program = installation_.daemon;
    if (Result<control::Json> daemon = control::ensure_daemon(daemon_); !daemon.ok()) {
      // Priorities work without it; only turns among equals, and shares, do not.
      note(std::string("no daemon, so jobs of equal priority take no turns: ") + daemon.status().message());
    }
    std::vector<JobSlots> slots;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      std::vector<GpuName> gpus;
      for (std::size_t at : choices[i].gpus) gpus.push_back({machine_->gpus()[at].uuid, machine_->gpus()[at].name});
      Result<JobSlots> claimed = JobSlots::claim(runtime_dir, jobs_[i].request(), gpus, machine_->simulated());
      if (!claimed.ok()) return claimed.status();
      slots.push_back(std::move(*claimed));
    }
    daemon_.timeout_ns = kKeepDaemonNs;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      jobs_[i].set_slots(std::move(slots[i]));
      say_where(jobs_[i], choices[i]);
    }
    return {};
  }

  void say_where(const JobProcess& job, const Machine::Choice& choice) const {
    const bool chosen_among_several = !choice.why.empty() && machine_->gpus().size() > 1;
    if (!options_.verbose && !chosen_among_several) return;
    std::string where;
    for (std::size_t at : choice.gpus) {
      const Candidate& gpu = machine_->gpus()[at];
      where += (where.empty() ? "" : ", ") + ("GPU " + std::to_string(gpu.index)) + " (" + gpu.name + ")";
    }
    note("job " + std::to_string(job.slots().id()) + " runs on " + where +
         (choice.why.empty() ? "" : ": " + choice.why));
  }

  Environment shimmed(Environment environment) const {
    environment.prepend("LD_LIBRARY_PATH", installation_.shim_dir);
    environment.set("SLUICE_DRIVER", machine_->driver());
    return environment;
  }

  Environment environment_of(const JobProcess& job) const {
    Environment environment = own_environment_;
    for (const auto& [name, value] : job.request().environment) environment.set(name, value);
    if (!machine_) return environment;
    const std::string visible = joined(job.devices());
    if (!visible.empty()) environment.set("CUDA_VISIBLE_DEVICES", visible);
    // The emulator answers for NVML too, and its name was not in the caller's environment.
    if (const char* nvml = std::getenv("SLUICE_NVML"); nvml != nullptr && simulated())
      environment.set("SLUICE_NVML", nvml);
    environment.unset("SLUICE_BOARDS");  // of a `sluice run` that this one runs in
    environment.unset("SLUICE_JOB");
    if (job.slots().empty()) {
      // Without the shim a program still has to find the emulator.
      if (simulated()) environment.prepend("LD_LIBRARY_PATH", folder_of(machine_->driver()));
      return environment;
    }
    environment = shimmed(std::move(environment));
    environment.set("SLUICE_BOARDS", job.slots().boards_variable());
    environment.set("SLUICE_JOB", std::to_string(job.slots().id()));
    return environment;
  }

  bool all_finished() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const JobProcess& job) { return job.finished(); });
  }

  void loop(Signals& signals) {
    std::uint64_t check_at = now_ns() + options_.check_after_ns;
    while (!all_finished()) {
      std::uint64_t now = now_ns();
      std::uint64_t wake_at = check_at;
      for (JobProcess& job : jobs_) wake_at = std::min(wake_at, job.tick(now));
      if (all_finished()) break;
      if (now >= check_at) {
        check_at = now + (check_unseen() ? kSecondLookNs : options_.check_after_ns);
        keep_daemon();
      }
      now = now_ns();
      siginfo_t info;
      const int signal = signals.next(wake_at > now ? wake_at - now : 0, &info);
      if (signal == SIGCHLD) {
        collect(signals);
      } else if (signal != 0) {
        if (Signals::must_forward(signal, info)) {
          for (const JobProcess& job : jobs_) {
            if (job.running()) kill(job.pid(), signal);
          }
        }
        if (signal == SIGTSTP) signals.stop_self(SIGTSTP);
      }
    }
  }

  // A daemon that was killed took the turns among equals with it.
  void keep_daemon() {
    if (daemon_.runtime_dir.empty()) return;
    const Result<control::Json> answer = control::ensure_daemon(daemon_);
    static_cast<void>(answer.ok());  // priorities work without it, and the next look tries again
  }

  bool check_unseen() {
    bool again = false;
    if (!machine_) return again;
    for (JobProcess& job : jobs_) again |= job.check_unseen(*machine_, installation_.shim_dir, options_.quiet);
    return again;
  }

  void collect(Signals& signals) {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
      for (JobProcess& job : jobs_) {
        if (job.pid() != pid) continue;
        if (!WIFSTOPPED(status)) {
          job.on_exit(status);
        } else if (jobs_.size() == 1 &&
                   (WSTOPSIG(status) == SIGTSTP || WSTOPSIG(status) == SIGTTIN || WSTOPSIG(status) == SIGTTOU)) {
          signals.stop_self(SIGTSTP);  // so that the shell sees its job stopped
        }
      }
    }
  }

  RunOptions options_;
  std::vector<JobProcess> jobs_;
  Installation installation_ = find_installation();
  const Environment own_environment_ = Environment::of_this_process();
  std::optional<Machine> machine_;
  control::DaemonStart daemon_;  // of the jobs' boards; no directory: they have none
};

}  // namespace

int run_jobs(std::vector<JobRequest> requests, const RunOptions& options) {
  if (disabled() && requests.size() == 1 && requests[0].working_directory.empty() && requests[0].environment.empty() &&
      requests[0].duration_ns == 0) {
    const Spawned failed = replace_self(requests[0].command);
    say("run: " + failed.error);
    return failed.exit_code;
  }
  return Runner(std::move(requests), options).run();
}

}  // namespace sluice::cli
