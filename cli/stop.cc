// sluice stop: ends jobs, politely first. Works from the boards, so it needs no daemon.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "job_slots.h"
#include "mps.h"
#include "output.h"
#include "processes.h"
#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "sluice/base/user.h"
#include "sluice/board.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t kPollNs = 10 * kNanosPerMilli;
constexpr std::uint64_t kAfterKillNs =
    5 * kNanosPerSecond;  // a process in an uninterruptible wait may outlive even that

// The jobs of all boards, one entry a job though it may be on several.
std::map<std::uint64_t, BoardJob> jobs_on(const Boards& boards) {
  std::map<std::uint64_t, BoardJob> jobs;
  for (const board::Board* board : boards.all()) {
    for (BoardJob& job : live_jobs(*board)) {
      const auto [at, is_new] = jobs.emplace(job.id, job);
      if (is_new) continue;
      BoardJob& known = at->second;
      if (job.run != known.run && job.run != 0) known.other_runs.push_back(job.run);
      known.started_ns = std::min(known.started_ns, job.started_ns);
    }
  }
  return jobs;
}

// Every member of a group can write the boards: what stands there is believed only where the kernel says the same.
bool is_run_of(ProcessIdentity process, const BoardJob& job) {
  uid_t user = 0;
  if (!user_of(process, &user) || program_of(pid_of(process)) != "sluice") return false;
  return user == (geteuid() == 0 ? job.user.value_or(0) : geteuid());
}

BoardJob with_its_own_runs(BoardJob job) {
  std::vector<ProcessIdentity>& others = job.other_runs;
  others.erase(std::remove_if(others.begin(), others.end(), [&](ProcessIdentity run) { return !is_run_of(run, job); }),
               others.end());
  if (!is_run_of(job.run, job)) job.run = 0;
  return job;
}

// Not the clients that the board names: those that are the job's descend from its command or have its number.
std::vector<ProcessIdentity> alive_of(const BoardJob& job) {
  // Without its parent the child is gone or adopted, and its pid may be another's by now.
  const bool has_child = is_alive(job.run) && job.child > 0 && parent_of(job.child) == pid_of(job.run);
  std::vector<ProcessIdentity> processes = processes_of_job(job.id, has_child ? job.child : 0, job.started_ns);
  processes.erase(std::remove_if(processes.begin(), processes.end(), [](ProcessIdentity p) { return !is_alive(p); }),
                  processes.end());
  return processes;
}

bool over(const BoardJob& job) {
  return !is_alive(job.run) && std::none_of(job.other_runs.begin(), job.other_runs.end(), is_alive) &&
         alive_of(job).empty();
}

void signal_process(ProcessIdentity process, int signal) {
  if (is_alive(process)) kill(pid_of(process), signal);
}

void signal_job(const BoardJob& job, int signal) {
  for (ProcessIdentity process : alive_of(job)) signal_process(process, signal);
}

// Asks the way a service manager would: `sluice run` passes it on; without one the processes are asked directly.
void ask(const BoardJob& job) {
  terminate_mps_clients(alive_of(job), SIGTERM);
  if (job.run != 0) {
    std::vector<ProcessIdentity> runs = job.other_runs;
    runs.push_back(job.run);
    // Continued first: a SIGCONT that came after would take the SIGSTOP away by which a debugger, or a sanitizer's
    // check for leaks, attaches to the process as it ends.
    for (ProcessIdentity run : runs) {
      signal_process(run, SIGCONT);
      signal_process(run, SIGTERM);
    }
  } else {
    signal_job(job, SIGTERM);
  }
  signal_job(job, SIGCONT);  // a stopped process sees no SIGTERM
}

// Waits until all of `jobs` are over or the deadline; those that are over get `how` and leave `jobs`.
void wait_for(std::vector<BoardJob>* jobs, std::uint64_t deadline, const char* how, nlohmann::json* done) {
  for (;;) {
    for (auto job = jobs->begin(); job != jobs->end();) {
      if (!over(*job)) {
        ++job;
        continue;
      }
      done->push_back({{"id", job->id}, {"name", job->name}, {"result", how}});
      job = jobs->erase(job);
    }
    if (jobs->empty() || now_ns() >= deadline) return;
    sleep_ns(kPollNs);
  }
}

// In a group's directory other people's jobs are on the boards too.
bool may_stop(const BoardJob& job) { return geteuid() == 0 || !job.user || *job.user == geteuid(); }

}  // namespace

int stop_verb(std::vector<std::string> args) {
  std::vector<std::string> names;
  std::string grace_text = "5s";
  bool all = false, as_json = false;
  CLI::App app("Ends jobs: SIGTERM, and SIGKILL for what is left after the grace.", "stop");
  set_usage(app, "Usage: sluice stop [OPTIONS] JOB...\n       sluice stop [OPTIONS] --all");
  app.add_option("jobs", names, "Ids, as sluice ps shows them")->option_text("JOB...");
  app.add_flag("-a,--all", all, "Every job of yours");
  app.add_option("-t,--grace", grace_text, "Time between SIGTERM and SIGKILL (5s)")->option_text("TIME");
  app.add_flag("--json", as_json, "As JSON");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  Result<std::uint64_t> grace = parse_duration_ns(grace_text);
  if (!grace.ok()) return fail("stop", grace.status());
  if (names.empty() != all)
    return usage_error(
        "stop", all ? "give job ids or --all, not both" : "which job? give ids, as sluice ps shows them, or --all");

  char runtime_dir[PATH_MAX];
  if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok())
    return fail("stop", status);
  const Boards boards = Boards::open_all(runtime_dir);
  const std::map<std::uint64_t, BoardJob> known = jobs_on(boards);
  std::vector<BoardJob> chosen;
  for (const std::string& name : names) {
    std::uint64_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size()) {
      return usage_error("stop", "'" + name.substr(0, 60) + "' is no job id; sluice ps shows them");
    }
    const auto found = known.find(id);
    if (found == known.end()) return usage_error("stop", "no job " + name + "; sluice ps shows the jobs");
    if (!may_stop(found->second)) {
      return fail("stop", Status::error(Code::kPermissionDenied, "job %s belongs to %s: only they and root may stop it",
                                        name.c_str(), user_name(*found->second.user).c_str()));
    }
    if (std::none_of(chosen.begin(), chosen.end(), [&](const BoardJob& job) { return job.id == id; }))
      chosen.push_back(with_its_own_runs(found->second));
  }
  if (all) {
    for (const auto& [id, job] : known) {
      if (job.user == geteuid()) chosen.push_back(with_its_own_runs(job));
    }
  }

  nlohmann::json done = nlohmann::json::array();
  for (const BoardJob& job : chosen) ask(job);
  wait_for(&chosen, now_ns() + *grace, "ended", &done);
  for (const BoardJob& job : chosen) {
    terminate_mps_clients(alive_of(job), SIGKILL);
    signal_job(job, SIGKILL);
  }
  wait_for(&chosen, now_ns() + kAfterKillNs, "killed", &done);
  for (const BoardJob& job : chosen) done.push_back({{"id", job.id}, {"name", job.name}, {"result", "still running"}});

  if (as_json) {
    print_json({{"jobs", done}});
  } else {
    if (done.empty()) std::printf("no jobs\n");
    for (const nlohmann::json& job : done) {
      std::printf("job %s (%s): %s\n", job["id"].dump().c_str(), printable(job["name"].get<std::string>()).c_str(),
                  job["result"].get<std::string>().c_str());
    }
  }
  return chosen.empty() ? kExitOk : kExitFailed;
}

}  // namespace sluice::cli
