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
#include <set>

#include "elf_paths.h"
#include "elsewhere.h"
#include "installation.h"
#include "job_process.h"
#include "loaded.h"
#include "machine.h"
#include "mps.h"
#include "output.h"
#include "program_file.h"
#include "ranks.h"
#include "signals.h"
#include "sluice/base/units.h"
#include "sluice/board.h"
#include "sluice/control.h"
#include "spawn.h"
#include "summary.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t kProbeTimeoutNs = 5 * kNanosPerSecond;
constexpr std::uint64_t kKeepDaemonNs = 500 * kNanosPerMilli;  // signals wait so long at most
constexpr std::uint64_t kSecondLookNs = 250 * kNanosPerMilli;
constexpr std::uint64_t kWaitLookNs = 200 * kNanosPerMilli;  // for memory that others give back
constexpr char kShimName[] = "libcuda.so.1";
constexpr char kDefaultPath[] = "/bin:/usr/bin";  // execvp's
constexpr char kLimitFolder[] = "/limit";         // beside the shim's: the NVML of jobs with a limit

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
      if (job.request().wait && !job.slots().empty()) {
        job.begin_wait();
      } else {
        start(job, signals);
      }
    }
    loop(signals);

    nlohmann::json all = nlohmann::json::array();
    for (const JobProcess& job : jobs_) {
      const JobOutcome outcome = job.outcome(simulated());
      if (options_.json) {
        say_event({{"event", "ended"}, {"outcome", outcome_json(outcome)}});
      } else if (!options_.quiet && outcome.id != 0) {
        say(summary_line(outcome));
      }
      all.push_back(outcome_json(outcome));
    }
    if (Status status = machine_ ? mps_.end() : Status(); !status.ok())
      note("the MPS daemon was not ended: " + std::string(status.message()));
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

  void start(JobProcess& job, Signals& signals) {
    if (!job.start(environment_of(job), signals)) job.set_slots(JobSlots());
  }

  // One object a line, without the "sluice: " in front.
  static void say_event(const nlohmann::json& event) {
    const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
  }

  // Starts the jobs whose memory is free now. Returns whether any job waits still.
  bool look_for_memory(Signals& signals) {
    bool waiting = false;
    for (JobProcess& job : jobs_) {
      if (!job.waiting()) continue;
      const std::vector<MemoryNeed> needs = job.slots().needs([&](const std::string& uuid) {
        const std::optional<Machine::Memory> memory = machine_->memory(uuid);
        return memory ? std::optional<std::uint64_t>(memory->free_bytes) : std::nullopt;
      });
      if (std::all_of(needs.begin(), needs.end(), [](const MemoryNeed& need) { return need.met(); })) {
        job.end_wait();
        if (job.wait_told()) say_started(job);
        start(job, signals);
        continue;
      }
      waiting = true;
      if (!job.wait_told()) say_waiting(job, needs);
    }
    return waiting;
  }

  void say_waiting(JobProcess& job, const std::vector<MemoryNeed>& needs) {
    job.set_wait_told();
    if (options_.json) {
      nlohmann::json list = nlohmann::json::array();
      for (const MemoryNeed& need : needs) {
        list.push_back({{"device", need.uuid},
                        {"memory_limit_bytes", need.needed_bytes},
                        {"free_bytes", need.free_bytes},
                        {"promised_bytes", need.promised_bytes},
                        {"others_first", need.ahead}});
      }
      say_event({{"event", "waiting"}, {"id", job.slots().id()}, {"name", job.request().name}, {"needs", list}});
      return;
    }
    for (const MemoryNeed& need : needs) {
      if (need.met()) continue;
      std::string text = "job " + std::to_string(job.slots().id()) + " waits for " + format_bytes(need.needed_bytes) +
                         " of " + machine_->label(need.uuid) + ": " + format_bytes(need.free_bytes) + " are free";
      if (need.promised_bytes != 0)
        text += ", " + format_bytes(need.promised_bytes) + " of these promised to running jobs";
      if (need.ahead) text += "; others wait longer";
      note(text + " (sluice ps shows who has it)");
    }
  }

  void say_started(const JobProcess& job) {
    if (options_.json) {
      say_event({{"event", "started"},
                 {"id", job.slots().id()},
                 {"name", job.request().name},
                 {"waited_us", job.waited_ns() / kNanosPerMicro}});
    } else {
      note("job " + std::to_string(job.slots().id()) + " starts after waiting " + format_duration_ns(job.waited_ns()));
    }
  }

  void bypass_all(const std::string& reason) {
    for (JobProcess& job : jobs_) job.set_bypass(reason);
    const bool limited =
        std::any_of(jobs_.begin(), jobs_.end(), [](const JobProcess& job) { return job.request().memory.any(); });
    note("running without Sluice" + std::string(limited ? ", hence without its memory limit" : "") + ": " + reason);
  }

  // Everything before the first command starts. An error means that the request itself cannot be met.
  Status prepare() {
    if (disabled()) {
      for (JobProcess& job : jobs_) {
        job.set_bypass("SLUICE_DISABLE is 1");
        job.request().mps = false;
      }
      return {};
    }
    const bool wants_mps =
        std::any_of(jobs_.begin(), jobs_.end(), [](const JobProcess& job) { return job.request().mps; });
    Result<Machine> machine = Machine::look(installation_);
    if (!machine.ok()) {
      for (const JobProcess& job : jobs_) {
        if (job.request().gpu.kind == GpuRequest::Kind::kList || wants_mps) return machine.status();
      }
      bypass_all(machine.status().message());
      return {};
    }
    machine_ = std::move(*machine);
    if (machine_->substituted() && !wants_mps) {
      note("no NVIDIA driver found; using the simulated " + machine_->gpus().front().name);
    }
    std::vector<Machine::Choice> choices;
    std::vector<std::string> mps_gpus;
    for (JobProcess& job : jobs_) {
      if (jobs_.size() == 1) be_rank(job);
      Result<Machine::Choice> choice = machine_->choose(job.request(), own_environment_);
      if (!choice.ok() && choice.status().code() == Code::kNotFound) {
        if (wants_mps) return Status::error(Code::kUnavailable, "MPS is not possible: %s", choice.status().message());
        bypass_all(choice.status().message());
        return {};
      }
      if (!choice.ok()) return choice.status();
      machine_->count_job(*choice, job.request().priority);
      std::vector<std::string> uuids;
      for (std::size_t at : choice->gpus) uuids.push_back(machine_->gpus()[at].uuid);
      job.set_devices(uuids);
      if (job.request().mps) mps_gpus.insert(mps_gpus.end(), uuids.begin(), uuids.end());
      Result<std::vector<GpuName>> places = machine_->places(job.request(), *choice);
      if (!places.ok()) return places.status();
      places_.push_back(std::move(*places));
      choices.push_back(std::move(*choice));
    }
    if (!mps_gpus.empty()) {
      if (Status status = mps_.prepare(*machine_, mps_gpus, own_environment_); !status.ok()) return status;
      note(mps_.line());
    }
    if (Status status = join(choices); !status.ok()) bypass_all(status.message());
    return {};
  }

  // Ranks choose among the GPUs that they see, each by its number: unless told otherwise they get all of them.
  void be_rank(JobProcess& job) const {
    JobRequest& request = job.request();
    request.ranks = ranks_of(own_environment_, request.priority);
    if (request.ranks == 0) return;
    if (request.gpu.kind != GpuRequest::Kind::kUnsaid || own_environment_.get("CUDA_VISIBLE_DEVICES")) return;
    request.gpu.kind = GpuRequest::Kind::kAuto;
    request.gpu.count = static_cast<int>(machine_->gpus().size());
  }

  // Takes the jobs' places on the boards. An error is a reason to run without Sluice.
  Status join(const std::vector<Machine::Choice>& choices) {
    if (installation_.shim_dir.find_first_of(":;") != std::string::npos) {
      return Status::error(Code::kFailedPrecondition,
                           "the installation's path holds a : or ;, which no library path can");
    }
    char runtime_dir[PATH_MAX];
    if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok()) return status;
    const Status loaded = test_load_once(runtime_dir, installation_.program, installation_.shim_dir + "/" + kShimName,
                                         machine_->driver(), shimmed(own_environment_), kProbeTimeoutNs);
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
      Result<JobSlots> claimed = JobSlots::claim(runtime_dir, jobs_[i].request(), places_[i], machine_->simulated());
      if (!claimed.ok()) return claimed.status();
      slots.push_back(std::move(*claimed));
    }
    daemon_.timeout_ns = kKeepDaemonNs;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      jobs_[i].set_slots(std::move(slots[i]));
      say_where(jobs_[i], choices[i]);
      reach_elsewhere(jobs_[i]);
    }
    return {};
  }

  // A program that this process does not start itself gets the shim by other means, or a line says how.
  void reach_elsewhere(JobProcess& job) const {
    JobRequest& request = job.request();
    const std::optional<Elsewhere> found =
        elsewhere(request.command, {"sluice", "run", "--priority", priority_name(request.priority), "--"});
    if (!found) return;
    if (found->kind == Elsewhere::Kind::kMachine) {
      return note(found->program + " starts the program on another machine, whose own Sluice has to run it: " +
                  shell_text(found->instead));
    }
    ContainerNeeds needs{installation_.shim_dir, daemon_.runtime_dir, "", "", ""};
    if (request.mps) needs.mps_pipe_dir = mps_.pipe_directory();
    if (request.memory.any()) needs.limit_dir = limit_folder();
    if (simulated()) needs.emulator_dir = folder_of(machine_->driver());
    const std::vector<std::string> options = container_options(*found, needs);
    if (!request.container) {
      return note(found->program + " starts the container without Sluice; " +
                  (found->image != 0 ? "say sluice run --container, or add behind its run: "
                                     : found->unsure + "; a container needs: ") +
                  shell_text(options));
    }
    request.command.insert(request.command.begin() + static_cast<std::ptrdiff_t>(found->image), options.begin(),
                           options.end());
    if (!found->has_gpu && !simulated())
      note("the container may get no GPU: its run has no --gpus, --device or --runtime");
    const std::string own = std::to_string(geteuid());
    if (found->user && *found->user != own && !found->user->starts_with(own + ":") && *found->user != "0" &&
        *found->user != "root") {
      note("user " + *found->user + " of the container may not open the board of user " + own +
           ": the job will not be managed");
    }
  }

  std::string limit_folder() const { return folder_of(installation_.shim_dir) + kLimitFolder; }

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

  // A program whose DT_RPATH holds a driver finds that one first. Preloaded, the shim stands for the driver's name
  // already; only for such programs, since it is then loaded by every process of the job.
  void preload_where_needed(const JobProcess& job, Environment* environment) const {
    const std::string file = program_file(job.request().command[0], environment->get("PATH").value_or(kDefaultPath));
    const std::string driver = file.empty() ? "" : driver_in_rpath(file);
    if (driver.empty()) return;
    const std::string shim = installation_.shim_dir + "/" + kShimName;
    if (shim.find(' ') != shim.npos) {
      return note("job " + std::to_string(job.slots().id()) + " cannot be held: its DT_RPATH leads to " + driver +
                  ", and the shim's path has a space, which LD_PRELOAD cannot hold");
    }
    environment->prepend("LD_PRELOAD", shim);
    note("job " + std::to_string(job.slots().id()) + ": the DT_RPATH of " + file + " leads to " + driver +
         "; the shim is preloaded in front of it");
  }

  Environment environment_of(const JobProcess& job) const {
    Environment environment = own_environment_;
    for (const auto& [name, value] : job.request().environment) environment.set(name, value);
    if (!machine_) return environment;
    mps_.add_to(job.request(), &environment);
    const std::string visible = joined(job.devices());
    if (!visible.empty()) environment.set("CUDA_VISIBLE_DEVICES", visible);
    // The emulator answers for NVML too, and its name was not in the caller's environment.
    if (const char* nvml = std::getenv("SLUICE_NVML"); nvml != nullptr && simulated())
      environment.set("SLUICE_NVML", nvml);
    environment.unset("SLUICE_BOARDS");  // of a `sluice run` that this one runs in
    environment.unset("SLUICE_JOB");
    environment.unset("SLUICE_BATCH_HINT_FILE");
    if (job.slots().empty()) {
      // Without the shim a program still has to find the emulator.
      if (simulated()) environment.prepend("LD_LIBRARY_PATH", folder_of(machine_->driver()));
      return environment;
    }
    if (const std::string folder = limit_folder();
        job.request().memory.any() && file_exists(folder + "/libnvidia-ml.so.1")) {
      environment.prepend("LD_LIBRARY_PATH", folder);
      if (const std::string nvml = machine_->nvml_library(); !nvml.empty()) environment.set("SLUICE_NVML", nvml);
    }
    environment = shimmed(std::move(environment));  // its folder first
    preload_where_needed(job, &environment);
    environment.set("SLUICE_BOARDS", job.slots().boards_variable());
    const std::string id = std::to_string(job.slots().id());
    environment.set("SLUICE_JOB", id);
    environment.set("SLUICE_BATCH_HINT_FILE", daemon_.runtime_dir + "/" + control::kBatchHintPrefix + id);
    return environment;
  }

  bool all_finished() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const JobProcess& job) { return job.finished(); });
  }

  void loop(Signals& signals) {
    std::uint64_t check_at = now_ns() + options_.check_after_ns;
    while (!all_finished()) {
      const bool waiting = look_for_memory(signals);
      std::uint64_t now = now_ns();
      std::uint64_t wake_at = waiting ? std::min(check_at, now + kWaitLookNs) : check_at;
      for (JobProcess& job : jobs_) wake_at = std::min(wake_at, job.tick(now));
      if (all_finished()) break;
      if (now >= check_at) {
        check_at = now + (check_unseen() ? kSecondLookNs : options_.check_after_ns);
        keep_daemon();
        say_out_of_use();
      }
      now = now_ns();
      siginfo_t info;
      const int signal = signals.next(wake_at > now ? wake_at - now : 0, &info);
      if (signal == SIGCHLD) {
        collect(signals);
      } else if (signal != 0) {
        if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT) {
          for (JobProcess& job : jobs_) {
            if (job.waiting()) job.cancel(signal);
          }
        }
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

  // Jobs that run are left to their users; who starts one is refused the card.
  void say_out_of_use() {
    if (daemon_.runtime_dir.empty()) return;
    for (const Candidate& gpu : machine_->gpus()) {
      const auto has_it = [&](const JobProcess& job) {
        return job.running() && std::count(job.devices().begin(), job.devices().end(), gpu.uuid) > 0;
      };
      if (told_out_.contains(gpu.uuid) || std::none_of(jobs_.begin(), jobs_.end(), has_it)) continue;
      const std::optional<std::string> why =
          control::read_notice(daemon_.runtime_dir, control::kOutOfUsePrefix + gpu.uuid);
      if (!why) continue;
      told_out_.insert(gpu.uuid);
      note(machine_->label(gpu.uuid) + " was taken out of use: " + *why + "; no new job starts there");
    }
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
  JobsMps mps_;
  std::vector<std::vector<GpuName>> places_;  // of each job
  std::set<std::string> told_out_;            // GPUs that were said to be out of use
  control::DaemonStart daemon_;               // of the jobs' boards; no directory: they have none
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
