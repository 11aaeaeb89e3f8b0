// A process environment that can be changed without touching the caller's own. Not thread safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

class Environment {
 public:
  static Environment of_this_process();

  std::optional<std::string> get(std::string_view name) const;
  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);
  // Puts `folder` in front of a colon-separated list, once: an earlier mention of it is dropped.
  void prepend(std::string_view name, const std::string& folder);

  // For execve; valid until the next change.
  std::vector<char*> pointers();

 private:
  std::vector<std::string> entries_;  // NAME=value
};

}  // namespace sluice::cli
