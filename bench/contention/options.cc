#include "options.h"

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>

namespace sluice::bench {
namespace {

Status at_line(const std::string& path, const toml::node& node, const std::string& message) {
  return Status::error(Code::kInvalidArgument, "%s:%u: %s", path.c_str(), node.source().begin.line, message.c_str());
}

Status read_command(const std::string& path, const toml::node& node, JobSpec* job) {
  if (const auto* text = node.as_string()) {
    auto words = split_command(text->get());
    if (!words.ok()) return at_line(path, node, words.status().message());
    job->command = *words;
    return {};
  }
  const auto* array = node.as_array();
  if (array == nullptr || array->empty()) return at_line(path, node, "command must be a string or a list of strings");
  for (const toml::node& word : *array) {
    if (!word.is_string()) return at_line(path, word, "command must be a string or a list of strings");
    job->command.push_back(word.as_string()->get());
  }
  return {};
}

// A text as it is, a number as its digits, "" for anything else.
std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return std::to_string(number->get());
  return "";
}

Status read_priority(const std::string& path, const toml::node& node, JobSpec* job) {
  auto priority = parse_priority(text_of(node));
  if (!priority.ok()) return at_line(path, node, priority.status().message());
  job->priority = *priority;
  return {};
}

Status read_environment(const std::string& path, const toml::node& node, JobSpec* job) {
  const auto* table = node.as_table();
  if (table == nullptr) return at_line(path, node, "environment must be a table of strings and numbers");
  for (const auto& [key, value] : *table) {
    const std::string text = text_of(value);
    if (text.empty() && !value.is_string())
      return at_line(path, value, "environment must be a table of strings and numbers");
    job->environment[std::string(key.str())] = text;
  }
  return {};
}

Status read_job(const std::string& path, const toml::table& table, JobSpec* job) {
  for (const auto& [key, node] : table) {
    std::string_view name = key.str();
    Status status;
    if (name == "command") {
      status = read_command(path, node, job);
    } else if (name == "priority") {
      status = read_priority(path, node, job);
    } else if (name == "environment") {
      status = read_environment(path, node, job);
    } else if (name == "share") {
      std::int64_t share = node.value<std::int64_t>().value_or(0);
      if (share < 1 || share > 1000) return at_line(path, node, "share must be a whole number from 1 to 1000");
      job->share = static_cast<std::uint32_t>(share);
    } else if (name == "name") {
      if (!node.is_string()) return at_line(path, node, "name must be a string");
      job->name = node.as_string()->get();
    } else if (name == "working_directory") {
      if (!node.is_string()) return at_line(path, node, "working_directory must be a string");
      // Relative to the file, as `sluice run` has it.
      job->working_directory = (std::filesystem::path(path).parent_path() / node.as_string()->get()).string();
    } else if (name == "leave_below" || name == "linger") {
      const std::string text = text_of(node);
      if (text.empty()) return at_line(path, node, std::string(name) + " must be a string or a number");
      job->run_options.insert(job->run_options.end(), {name == "linger" ? "--linger" : "--leave-below", text});
    } else if (name == "sm_percentage") {
      const std::int64_t percent = node.value<std::int64_t>().value_or(0);
      if (percent < 1 || percent > 100)
        return at_line(path, node, "sm_percentage must be a whole number from 1 to 100");
      job->sm_percentage = static_cast<unsigned>(percent);
    } else if (name != "gpu" && name != "duration" && name != "mps") {
      return at_line(path, node, "unknown key '" + std::string(name) + "' in [[job]]");
    }
    if (!status.ok()) return status;
  }
  if (job->command.empty()) return at_line(path, table, "this [[job]] has no command");
  return {};
}

}  // namespace

double default_seconds(bool simulated, double scale) { return simulated ? 6.0 / scale : 10.0; }

Result<std::vector<std::string>> split_command(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote != '\'' && c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return Status::error(Code::kInvalidArgument, "the command has an open quote (%c)", quote);
  if (in_word) words.push_back(std::move(word));
  if (words.empty()) return Status::error(Code::kInvalidArgument, "the command is empty");
  return words;
}

Result<std::int32_t> parse_priority(std::string_view text) {
  if (text == "low") return 0;
  if (text == "normal") return 50;
  if (text == "high") return 100;
  std::int32_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < -1000 || value > 1000) {
    return Status::error(Code::kInvalidArgument,
                         "priority must be high, normal, low or a whole number from -1000 to 1000");
  }
  return value;
}

Result<std::vector<JobSpec>> load_jobs(const std::string& path) {
  toml::table root;
  try {
    root = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    return Status::error(Code::kInvalidArgument, "%s:%u: %s", path.c_str(), error.source().begin.line,
                         std::string(error.description()).c_str());
  }
  for (const auto& [key, node] : root) {
    if (key.str() != "job")
      return at_line(path, node, "unknown key '" + std::string(key.str()) + "'; jobs are [[job]]");
  }
  const auto* tables = root["job"].as_array();
  if (tables == nullptr || tables->empty()) {
    return Status::error(Code::kInvalidArgument, "%s: no [[job]] in it", path.c_str());
  }
  std::vector<JobSpec> jobs;
  for (const toml::node& node : *tables) {
    if (!node.is_table()) return at_line(path, node, "jobs are tables: [[job]]");
    if (Status status = read_job(path, *node.as_table(), &jobs.emplace_back()); !status.ok()) return status;
  }
  return jobs;
}

std::vector<JobSpec> example_jobs(const std::string& bin_directory) {
  JobSpec high;
  high.name = "service";
  high.priority = 100;
  // The same arrivals in every setup of a repetition, others in the next.
  high.command = {bin_directory + "/example_latency", "--json", "--check", "--rate", "100", "--seed", "{repeat}"};
  JobSpec low;
  low.name = "batch";
  low.priority = 0;
  low.command = {bin_directory + "/example_throughput", "--json"};
  return {high, low};
}

void name_and_sort(std::vector<JobSpec>* jobs) {
  std::stable_sort(jobs->begin(), jobs->end(),
                   [](const JobSpec& a, const JobSpec& b) { return a.priority > b.priority; });
  std::set<std::string> used;
  for (JobSpec& job : *jobs) {
    if (job.name.empty()) {
      const std::string& program = job.command.front();
      job.name = program.substr(program.rfind('/') + 1);
    }
    for (char& c : job.name) {
      if (c == '/' || static_cast<unsigned char>(c) < ' ') c = '_';  // names become file names
    }
    std::string wanted = job.name;
    for (int n = 2; !used.insert(job.name).second; ++n) job.name = wanted + "-" + std::to_string(n);
  }
}

std::optional<int> parse_command_line(int argc, char** argv, const std::string& bin_directory, Options* options) {
  std::string file;
  std::vector<std::string> high, low;
  CLI::App app(
      "Measures jobs that share one GPU: each alone, together as the driver shares it, and together under Sluice.\n"
      "A job appends its request latencies, one line of microseconds each, to the file in SLUICE_LATENCY_FILE; the\n"
      "lines a second are its throughput. One that does not may print a last line of JSON with \"throughput_per_s\".\n"
      "Without jobs the two examples are measured. Without a GPU, an emulated RTX 2060 is used and said so.",
      "bench_contention");
  app.add_option("jobs", file, "TOML file with [[job]] tables, as `sluice run` takes it")->check(CLI::ExistingFile);
  app.add_option("--high", high, "Command of a job of high priority (repeatable)");
  app.add_option("--low", low, "Command of a job of low priority (repeatable)");
  app.add_option("--out", options->out, "Directory for report.json, report.html and the jobs' output")
      ->capture_default_str();
  app.add_option("--repeats", options->repeats, "Times that every setup is run, interleaved")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options->seconds,
                 "Seconds measured in a run, in the device's time (default: 10; simulated: 6 real seconds)")
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--ready-timeout", options->ready_seconds, "Real seconds a job may take before its first latency line")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--emulated", options->emulated, "Use the emulator although there is a GPU");
  app.add_option("--scale", options->scale, "Real seconds an emulated second takes (default: SLUICE_EMU_SCALE, else 8)")
      ->check(CLI::Range(0.1, 1000.0));
  app.add_flag("--mps", options->mps, "Measure MPS too, without and with Sluice; needs its control program and a GPU");
  app.add_option("--sluice", options->sluice, "The sluice program (default: the one beside this)")
      ->check(CLI::ExistingFile);
  app.add_flag("--json", options->json, "Print the report's JSON instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }

  auto refuse = [](const Status& status) {
    std::fprintf(stderr, "bench_contention: %s\n", status.message());
    return exit_code(status);
  };
  if (!file.empty()) {
    auto jobs = load_jobs(file);
    if (!jobs.ok()) return refuse(jobs.status());
    options->jobs = *jobs;
  }
  for (const auto* commands : {&high, &low}) {
    for (const std::string& text : *commands) {
      auto words = split_command(text);
      if (!words.ok()) return refuse(words.status());
      JobSpec& job = options->jobs.emplace_back();
      job.command = *words;
      job.priority = commands == &high ? 100 : 0;
      job.name = commands == &high ? "high" : "low";
    }
  }
  if (options->jobs.empty()) options->jobs = example_jobs(bin_directory);
  if (options->jobs.size() < 2) {
    return refuse(Status::error(Code::kInvalidArgument, "one job has nobody to share with: give at least two"));
  }
  name_and_sort(&options->jobs);
  if (options->sluice.empty()) options->sluice = bin_directory + "/sluice";
  return std::nullopt;
}

}  // namespace sluice::bench
