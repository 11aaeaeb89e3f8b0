#include "environment.h"

#include <unistd.h>

#include <algorithm>

namespace sluice::cli {
namespace {

bool is_entry_of(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry.compare(0, name.size(), name) == 0 && entry[name.size()] == '=';
}

}  // namespace

Environment Environment::of_this_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.entries_.emplace_back(*entry);
  return result;
}

std::optional<std::string> Environment::get(std::string_view name) const {
  for (const std::string& entry : entries_) {
    if (is_entry_of(entry, name)) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

void Environment::set(std::string_view name, std::string_view value) {
  unset(name);
  entries_.push_back(std::string(name) + "=" + std::string(value));
}

void Environment::unset(std::string_view name) {
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                [&](const std::string& entry) { return is_entry_of(entry, name); }),
                 entries_.end());
}

void Environment::prepend(std::string_view name, const std::string& folder) {
  std::string list = folder;
  const std::string before = get(name).value_or("");
  for (std::size_t at = 0; at < before.size();) {
    const std::size_t end = std::min(before.find(':', at), before.size());
    // An empty element means the working directory; it is kept where the user wrote one.
    if (before.compare(at, end - at, folder) != 0) list += ":" + before.substr(at, end - at);
    at = end + 1;
  }
  set(name, list);
}

std::vector<char*> Environment::pointers() {
  std::vector<char*> result;
  for (std::string& entry : entries_) result.push_back(entry.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace sluice::cli
