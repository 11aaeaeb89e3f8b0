// sluice run: one command, or the jobs of a TOML file.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "elsewhere.h"
#include "job_file.h"
#include "job_request.h"
#include "output.h"
#include "runner.h"
#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "sluice/board.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

constexpr char kFooter[] =
    "Exit codes: the command's own; 128+N when signal N ended it; 127 command not found; 126 not executable;\n"
    "2 bad usage or job file; 3 no such GPU. docs/cli.md has the job file's keys.";

struct Texts {
  std::string priority = "normal", share = "1", gpu, name, leave_below = "0", linger, memory, check_after = "10s",
              sm_percentage, file;
  bool wait = false, mps = false, container = false;
};

template <class T, class To>
Status take(Result<T> parsed, To* to) {
  if (!parsed.ok()) return parsed.status();
  *to = std::move(*parsed);
  return {};
}

Status fill(const Texts& texts, JobRequest* request) {
  if (Status status = take(parse_priority(texts.priority), &request->priority); !status.ok()) return status;
  if (Status status = take(parse_share(texts.share), &request->share); !status.ok()) return status;
  if (Status status = take(parse_leave_below(texts.leave_below), &request->min_below_permille); !status.ok())
    return status;
  if (!texts.gpu.empty()) {
    if (Status status = take(parse_gpus(texts.gpu), &request->gpu); !status.ok()) return status;
  }
  if (!texts.linger.empty()) {
    if (Status status = take(parse_linger(texts.linger), &request->linger_ns); !status.ok()) return status;
  }
  if (!texts.memory.empty()) {
    if (Status status = take(parse_memory(texts.memory), &request->memory); !status.ok()) return status;
  }
  if (!texts.sm_percentage.empty()) {
    if (Status status = take(parse_sm_percentage(texts.sm_percentage), &request->sm_percentage); !status.ok())
      return status;
    if (!texts.mps)
      return Status::error(Code::kInvalidArgument, "--sm-percentage needs --mps: MPS is what caps a program's SMs");
  }
  request->mps = texts.mps;
  request->wait = texts.wait;
  request->container = texts.container;
  if (texts.container) {
    const std::optional<Elsewhere> found = elsewhere(request->command, {});
    if (!found || found->kind != Elsewhere::Kind::kContainer) {
      return Status::error(Code::kInvalidArgument, "--container: '%.60s' is no docker run, podman run or nerdctl run",
                           request->command[0].c_str());
    }
    if (found->image == 0)
      return Status::error(Code::kInvalidArgument, "--container: %s; docs/containers.md has the options to add by hand",
                           found->unsure.c_str());
  }
  if (texts.wait && !request->memory.any())
    return Status::error(Code::kInvalidArgument, "--wait needs --memory SIZE: how much has to be free");
  request->name = texts.name.empty() ? default_name(request->command) : texts.name;
  return {};
}

}  // namespace

int run_verb(std::vector<std::string> args) {
  // What stands behind -- belongs to the command, however it looks.
  const auto dashes = std::find(args.begin(), args.end(), "--");
  const bool has_command = dashes != args.end();
  std::vector<std::string> command(has_command ? dashes + 1 : args.end(), args.end());
  args.erase(dashes, args.end());

  Texts texts;
  RunOptions options;
  CLI::App app("Runs a command, unmodified, so that it shares the GPU with other jobs by priority.", "run");
  set_usage(app, "Usage: sluice run [OPTIONS] -- COMMAND...\n       sluice run [OPTIONS] JOBS.toml");
  app.footer(kFooter);
  app.add_option("jobs", texts.file, "A TOML file with one [[job]] table a job")->option_text("JOBS.toml");
  std::vector<CLI::Option*> of_one_job = {
      app.add_option("-p,--priority", texts.priority, "high, normal, low or an integer; higher wins (normal)")
          ->option_text("PRIORITY"),
      app.add_option("-s,--share", texts.share, "Weight among jobs of equal priority (1)")->option_text("N"),
      app.add_option("-g,--gpu", texts.gpu, "auto, auto:N, or indices or UUIDs with commas (auto)")->option_text("GPU"),
      app.add_option("-n,--name", texts.name, "What ps and top call the job (from the command)")->option_text("NAME"),
      app.add_option("--leave-below", texts.leave_below, "Part of the GPU's time that jobs below get at least (0)")
          ->option_text("PERCENT"),
      app.add_option("--linger", texts.linger,
                     fmt::format("How long jobs below stay held after the last work: auto ({}us) or a duration",
                                 board::kDefaultLingerNs / 1000))
          ->option_text("TIME"),
      app.add_option("-m,--memory", texts.memory, "Most GPU memory its processes may allocate together, each GPU")
          ->option_text("SIZE|%"),
      app.add_flag("-w,--wait", texts.wait, "Start it when that memory is free, in order of arrival"),
      app.add_flag("--mps", texts.mps, "Make its processes clients of MPS; starts the MPS daemon where none answers"),
      app.add_option("--sm-percentage", texts.sm_percentage,
                     "Per cent of the SMs that each of them may use; needs --mps")
          ->option_text("N"),
      app.add_flag("--container", texts.container, "Add to docker run, podman run or nerdctl run what the job needs"),
  };
  app.add_option("--report", options.report, "Write the summary to a file as JSON")->option_text("FILE");
  app.add_option("--check-after", texts.check_after, "When to look for processes that miss the shim (10s)")
      ->option_text("TIME");
  app.add_flag("--json", options.json,
               "What Sluice says of waiting and of the end as JSON, an object a line, on stderr");
  app.add_flag("-q,--quiet", options.quiet, "No notes and no summary");
  app.add_flag("-v,--verbose", options.verbose, "Say which GPU and why");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;

  Result<std::uint64_t> check_after = parse_duration_ns(texts.check_after);
  if (!check_after.ok()) return fail("run", check_after.status());
  options.check_after_ns = std::max(*check_after, 100 * kNanosPerMilli);

  if (has_command) {
    if (!texts.file.empty()) {
      return usage_error("run", "'" + texts.file + "' stands before --; give a job file or a command, not both");
    }
    if (command.empty() || command[0].empty()) return usage_error("run", "there is no command after --");
    JobRequest request;
    request.command = std::move(command);
    if (Status status = fill(texts, &request); !status.ok()) return fail("run", status);
    return run_jobs({std::move(request)}, options);
  }
  if (texts.file.empty()) {
    return usage_error("run", "no command; write one after --, as in sluice run --priority low -- python train.py");
  }
  const std::string ending = ".toml";
  if (texts.file.size() < ending.size() ||
      texts.file.compare(texts.file.size() - ending.size(), ending.size(), ending) != 0) {
    return usage_error("run",
                       "put the command after --, as in sluice run -- " + texts.file + " (a job file ends in .toml)");
  }
  for (const CLI::Option* option : of_one_job) {
    if (option->count() > 0)
      return usage_error("run", option->get_name() + " belongs into the job file's [[job]] tables");
  }
  Result<std::vector<JobRequest>> requests = read_job_file(texts.file);
  if (!requests.ok()) return fail("run", requests.status());
  options.as_list = true;
  return run_jobs(std::move(*requests), options);
}

}  // namespace sluice::cli
