// bench_contention: jobs that share one GPU, each alone, together as the driver shares it, and together under Sluice.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "best.h"
#include "html.h"
#include "machine.h"
#include "measure.h"
#include "options.h"
#include "report.h"

namespace sluice::bench {
namespace {

constexpr char kProgram[] = "bench_contention";

int fail(const Status& status) {
  std::fprintf(stderr, "%s: %s\n", kProgram, status.message());
  return exit_code(status);
}

// One line on a terminal that is written over; nothing elsewhere.
class Progress {
 public:
  explicit Progress(int steps) : steps_(steps), shown_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  void step(const std::string& what) {
    ++step_;
    if (shown_) std::fprintf(stderr, "\r\033[K%d of %d: %s", step_, steps_, what.c_str());
  }

 private:
  int steps_;
  int step_ = 0;
  bool shown_;
};

// A run of every job by itself, put together as if it were one run.
Result<Run> measure_alone(const Options& options, const Machine& machine, const Mps& mps, int repeat, double seconds,
                          Progress* progress) {
  Run all;
  for (const JobSpec& job : options.jobs) {
    progress->step(job.name + " alone");
    // Half the time is enough where only the throughput matters, which needs fewer samples than a tail.
    double length = job.priority == options.jobs.front().priority ? seconds : seconds / 2;
    auto run = measure(options, machine, Setup::kAlone, mps, {job}, repeat, length);
    if (!run.ok()) return run.status();
    all.jobs.push_back(std::move(run->jobs.front()));
  }
  return all;
}

Status measure_all(const Options& options, const Machine& machine, Report* report) {
  std::vector<Setup> setups = {Setup::kAlone, Setup::kTimeSlicing};
  if (options.mps) setups.push_back(Setup::kMps);
  setups.push_back(Setup::kSluice);
  if (options.mps) setups.push_back(Setup::kSluiceMps);
  if (options.mps) {  // before anything is measured in vain
    Mps trial;
    if (Status status = trial.start(machine); !status.ok()) return status;
  }
  std::vector<std::vector<Run>> runs(setups.size());
  double seconds = options.seconds > 0 ? options.seconds : default_seconds(machine.simulated, machine.real_per_shown);
  Progress progress(options.repeats * static_cast<int>(options.jobs.size() + setups.size() - 1));
  for (int repeat = 1; repeat <= options.repeats; ++repeat) {
    for (std::size_t s = 0; s < setups.size(); ++s) {
      Mps mps;
      if (uses_mps(setups[s])) {
        if (Status status = mps.start(machine); !status.ok()) return status;
      }
      if (setups[s] != Setup::kAlone) progress.step(setup_title(setups[s]));
      auto run = setups[s] == Setup::kAlone ? measure_alone(options, machine, mps, repeat, seconds, &progress)
                                            : measure(options, machine, setups[s], mps, options.jobs, repeat, seconds);
      if (!run.ok()) return run.status();
      runs[s].push_back(std::move(*run));
    }
  }
  *report = make_report(options, machine, seconds, setups, runs);
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return Status::error(Code::kInternal, "cannot write %s: %s", path.c_str(), strerror(errno));
  return {};
}

int run(int argc, char** argv) {
  Options options;
  if (auto code = parse_command_line(argc, argv, own_directory(), &options)) return *code;
  const std::string shown_out = options.out;
  std::error_code error;
  options.out = std::filesystem::absolute(options.out, error).string();  // jobs may have another working directory
  std::filesystem::create_directories(options.out + "/jobs", error);
  if (error) {
    return fail(
        Status::error(Code::kInvalidArgument, "--out: cannot make %s: %s", shown_out.c_str(), error.message().c_str()));
  }
  stop_on_signals();
  auto machine = find_machine(options);
  if (!machine.ok()) return fail(machine.status());
  Report report;
  Status status = measure_all(options, *machine, &report);
  clean_up(*machine);
  if (!status.ok()) return fail(status);

  std::string json = to_json(report).dump(2) + "\n";
  if (Status s = write_file(options.out + "/report.json", json); !s.ok()) return fail(s);
  if (Status s = write_file(options.out + "/report.html", to_html(report)); !s.ok()) return fail(s);
  if (options.json) {
    std::fputs(json.c_str(), stdout);
  } else {
    std::printf("%s\n%s\n\n%s/report.json, %s/report.html\n%s\n", table(report).c_str(), verdict(report).c_str(),
                shown_out.c_str(), shown_out.c_str(), best_sentence(report).c_str());
  }
  return kExitOk;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--describe-device") == 0) return sluice::bench::describe_device_main();
  return sluice::bench::run(argc, argv);
}
