#include "job_file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "suggest.h"

namespace sluice::cli {
namespace {

const std::vector<std::string>& job_keys() {
  static const std::vector<std::string> keys = {"command",     "priority",    "share", "gpu",
                                                "duration",    "environment", "name",  "working_directory",
                                                "leave_below", "linger"};
  return keys;
}

class Loader {
 public:
  explicit Loader(std::string path) : path_(std::move(path)) {}

  Result<std::vector<JobRequest>> load(const toml::table& root) {
    for (const auto& [key, value] : root) {
      if (key == "job") continue;
      return error(line_of(value, key),
                   "unknown key '" + std::string(key.str()) + "'; a job file has only [[job]] tables");
    }
    const toml::array* jobs = root["job"].as_array();
    if (jobs == nullptr || jobs->empty() || !jobs->is_array_of_tables()) {
      return error(1, "there is no [[job]] table");
    }
    if (jobs->size() > kMostJobs) return error(1, "more than " + std::to_string(kMostJobs) + " jobs");
    std::vector<JobRequest> requests;
    for (const toml::node& node : *jobs) {
      JobRequest request;
      if (Status status = load_job(*node.as_table(), &request); !status.ok()) return status;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  Status error(std::size_t line, const std::string& what) const {
    return Status::error(Code::kInvalidArgument, "%.100s:%zu: %s", path_.c_str(), line, what.c_str());
  }

 private:
  static std::size_t line_of(const toml::node& value, const toml::key& key) {
    return key.source().begin.line != 0 ? key.source().begin.line : value.source().begin.line;
  }

  Status load_job(const toml::table& table, JobRequest* out) {
    for (const auto& [key, value] : table) {
      line_ = line_of(value, key);
      if (Status status = load_key(key.str(), value, out); !status.ok()) return status;
    }
    if (out->command.empty()) return error(table.source().begin.line, "this job has no command");
    if (out->name.empty()) out->name = default_name(out->command);
    return {};
  }

  Status load_key(std::string_view key, const toml::node& value, JobRequest* out) {
    if (key == "command") return load_command(value, out);
    if (key == "priority") return set(parse_priority(text_of(value)), &out->priority);
    if (key == "share") return set(parse_share(text_of(value)), &out->share);
    if (key == "leave_below") return set(parse_leave_below(text_of(value)), &out->min_below_permille);
    if (key == "gpu") return set(parse_gpus(list_of(value)), &out->gpu);
    if (key == "duration") return load_duration(value, out);
    if (key == "environment") return load_environment(value, out);
    if (key == "linger") {
      std::uint64_t linger_ns = 0;
      if (Status status = set(parse_linger(text_of(value)), &linger_ns); !status.ok()) return status;
      out->linger_ns = linger_ns;
      return {};
    }
    if (key == "name") {
      if (!value.is_string() || value.ref<std::string>().empty()) return error(line_, "name wants a text");
      out->name = value.ref<std::string>();
      return {};
    }
    if (key == "working_directory") {
      if (!value.is_string() || value.ref<std::string>().empty()) return error(line_, "working_directory wants a path");
      const std::string& folder = value.ref<std::string>();
      const std::size_t slash = path_.rfind('/');
      out->working_directory =
          folder[0] == '/' || slash == std::string::npos ? folder : path_.substr(0, slash + 1) + folder;
      return {};
    }
    return error(line_, "unknown key '" + std::string(key.substr(0, 40)) + "'" + did_you_mean(key, job_keys()));
  }

  Status load_command(const toml::node& value, JobRequest* out) {
    if (value.is_string()) {
      if (Status status = set(split_words(value.ref<std::string>()), &out->command); !status.ok()) return status;
    } else if (const toml::array* words = value.as_array()) {
      for (const toml::node& word : *words) {
        if (!word.is_string()) return error(line_, "command wants texts only");
        out->command.push_back(word.ref<std::string>());
      }
    } else {
      return error(line_, "command wants a text or a list of texts");
    }
    if (out->command.empty() || out->command[0].empty()) return error(line_, "the command is empty");
    for (const std::string& word : out->command) {
      if (word.find('\0') != std::string::npos) return error(line_, "the command holds a zero byte");
    }
    return {};
  }

  Status load_duration(const toml::node& value, JobRequest* out) {
    if (Status status = set(parse_duration_ns(text_of(value)), &out->duration_ns); !status.ok()) return status;
    if (out->duration_ns == 0) return error(line_, "a duration of 0 would end the job at once");
    return {};
  }

  Status load_environment(const toml::node& value, JobRequest* out) {
    const toml::table* table = value.as_table();
    if (table == nullptr) return error(line_, "environment wants a table, such as {KEY = \"value\"}");
    for (const auto& [key, entry] : *table) {
      line_ = line_of(entry, key);
      const std::string name(key.str());
      if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
        return error(line_, "'" + name.substr(0, 40) + "' is no name of an environment variable");
      }
      std::string text = text_of(entry);
      if ((text.empty() && !entry.is_string()) || text.find('\0') != std::string::npos) {
        return error(line_, "environment variable " + name.substr(0, 40) + " wants a text or a number");
      }
      out->environment.emplace_back(name, std::move(text));
    }
    return {};
  }

  // A scalar as the option of the same name takes it; "" for anything else, which every parser refuses.
  static std::string text_of(const toml::node& value) {
    if (value.is_string()) return value.ref<std::string>();
    if (value.is_integer()) return std::to_string(value.ref<std::int64_t>());
    if (value.is_floating_point() && std::isfinite(value.ref<double>())) {
      char text[64];
      std::snprintf(text, sizeof text, "%.17g", value.ref<double>());
      return text;
    }
    return "";
  }

  static std::string list_of(const toml::node& value) {
    const toml::array* list = value.as_array();
    if (list == nullptr) return text_of(value);
    std::string joined;
    for (const toml::node& entry : *list) joined += (joined.empty() ? "" : ",") + text_of(entry);
    return joined;
  }

  template <class T>
  Status set(Result<T> parsed, T* out) const {
    if (!parsed.ok()) return error(line_, parsed.status().message());
    *out = std::move(*parsed);
    return {};
  }

  std::string path_;
  std::size_t line_ = 0;
};

}  // namespace

Result<std::vector<JobRequest>> parse_job_file(std::string_view text, const std::string& path) {
  Loader loader(path);
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return loader.error(parsed.error().source().begin.line, std::string(parsed.error().description()));
  }
  return loader.load(parsed.table());
}

Result<std::vector<JobRequest>> read_job_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) {
    return Status::error(Code::kInvalidArgument, "cannot read the job file %.120s: %s", path.c_str(),
                         std::strerror(errno));
  }
  std::string text(kLargestJobFile + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return Status::error(Code::kInvalidArgument, "cannot read the job file %.120s: %s", path.c_str(),
                         std::strerror(errno));
  }
  if (text.size() > kLargestJobFile) {
    return Status::error(Code::kInvalidArgument, "the job file %.120s is larger than 1 MiB", path.c_str());
  }
  return parse_job_file(text, path);
}

}  // namespace sluice::cli
