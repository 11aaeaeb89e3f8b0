// Reading the kernel's files.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "collect.h"
#include "sluice/base/user.h"

namespace sluice::cli::doctor {
namespace {

template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const std::optional<std::string> text = read_text(path);
  return text ? number_in<std::uint64_t>(*text) : std::nullopt;
}

std::optional<std::uint64_t> read_entry(const std::string& path, const std::string& key) {
  std::istringstream lines(read_text(path).value_or(""));
  for (std::string name, value; lines >> name >> value;) {
    if (name == key) return number_in<std::uint64_t>(value);
  }
  return std::nullopt;
}

std::set<int> parse_cpus(const std::string& list) {
  std::set<int> cpus;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const auto first = number_in<int>(std::string_view(range).substr(0, dash));
    const auto last = dash == std::string::npos ? first : number_in<int>(std::string_view(range).substr(dash + 1));
    constexpr int kMost = 1 << 16;  // more than a kernel can have
    if (!first || !last || *first < 0 || *last >= kMost) continue;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

ProcessFacts process_at(const Roots& roots, pid_t pid) {
  ProcessFacts process;
  process.pid = pid;
  const std::string folder = roots.root + "/proc/" + std::to_string(pid);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return process;
  process.user = user_name(info.st_uid);
  process.name = read_text(folder + "/comm").value_or("");
  return process;
}

Roots roots_at(std::string root) {
  return {std::move(root), [](const std::string& path) -> std::optional<Roots::Space> {
            struct statvfs info;
            if (statvfs(path.c_str(), &info) != 0) return std::nullopt;
            return Roots::Space{info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize};
          }};
}

}  // namespace sluice::cli::doctor
