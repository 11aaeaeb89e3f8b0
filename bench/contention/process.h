// One process that is measured: started in a group of its own, with its output in files, and stopped for certain.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::bench {

struct Launch {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // added to the caller's; "" removes a variable
  std::string working_directory;                   // "": the caller's
  std::string stdout_path, stderr_path;            // created or emptied
};

// Kills its whole process group when it is destroyed. Thread safety: one thread.
class Process {
 public:
  Process() = default;
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  // Errors: kNotFound when the program cannot be executed; kInternal.
  static Result<Process> start(const Launch& launch);

  // The exit code, 128 + N for one that signal N ended; nullopt while it runs.
  std::optional<int> poll();

  // Asks it to end by SIGTERM (itself, not its children: that is its own business).
  void ask_to_end();

  // Waits at most `seconds` for its end, then kills its group and waits. Returns the exit code.
  int wait_or_kill(double seconds);

 private:
  pid_t pid_ = 0;
  std::optional<int> exit_;
};

// The last line of a file that starts with '{', else "".
std::string last_json_line(const std::string& path);

// The last `lines` lines of a file, for an error message; "" if it cannot be read.
std::string tail_of(const std::string& path, int lines);

}  // namespace sluice::bench
