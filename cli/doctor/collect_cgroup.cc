// What the control group of this process may use, in version 2 and in version 1.
#include <algorithm>
#include <charconv>
#include <sstream>

#include "collect.h"

namespace sluice::cli::doctor {
namespace {

// The folders from the process's own group up to the root of the hierarchy. In a container the path may be the host's,
// which is not there: then only the root.
std::vector<std::string> levels(const Roots& roots, const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  const std::string top = roots.root + mount;
  while (path.size() > 1) {
    if (read_text(top + path + "/cgroup.procs")) folders.push_back(top + path);
    path.erase(path.rfind('/'));
  }
  folders.push_back(top);
  return folders;
}

void take_cores(double quota, double period, const std::string& folder, CgroupFacts* group) {
  if (quota <= 0 || period <= 0 || (group->cpu_cores && *group->cpu_cores <= quota / period)) return;
  group->cpu_cores = quota / period;
  group->periods = read_entry(folder + "/cpu.stat", "nr_periods");
  group->throttled_periods = read_entry(folder + "/cpu.stat", "nr_throttled");
}

void take_memory(std::optional<std::uint64_t> limit, std::optional<std::uint64_t> used,
                 std::optional<std::uint64_t> files, CgroupFacts* group) {
  constexpr std::uint64_t kNone = std::uint64_t{1} << 62;  // version 1 writes "no limit" as about 2^63
  if (!limit || *limit >= kNone || (group->memory_limit_bytes && *group->memory_limit_bytes <= *limit)) return;
  group->memory_limit_bytes = limit;
  group->memory_used_bytes.reset();
  // Cached files go when memory is wanted; they are no reason to worry.
  if (used) group->memory_used_bytes = *used - std::min(*used, files.value_or(0));
}

void read_version_2(const std::string& folder, CgroupFacts* group) {
  std::istringstream line(read_text(folder + "/cpu.max").value_or(""));
  double quota = 0, period = 0;
  if (line >> quota >> period) take_cores(quota, period, folder, group);  // "max 100000" is no number
  take_memory(read_number(folder + "/memory.max"), read_number(folder + "/memory.current"),
              read_entry(folder + "/memory.stat", "inactive_file"), group);
}

}  // namespace

CgroupFacts collect_cgroup(const Roots& roots) {
  CgroupFacts group;
  std::istringstream lines(read_text(roots.root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    // "hierarchy:controllers:path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        for (const std::string& folder : levels(roots, mount, path)) read_version_2(folder, &group);
      }
      continue;
    }
    const std::string every = "," + controllers + ",";
    if (every.find(",cpu,") != std::string::npos) {
      for (const std::string& folder : levels(roots, "/sys/fs/cgroup/" + controllers, path)) {
        take_cores(static_cast<double>(read_number(folder + "/cpu.cfs_quota_us").value_or(0)),
                   static_cast<double>(read_number(folder + "/cpu.cfs_period_us").value_or(0)), folder, &group);
      }
    }
    if (every.find(",memory,") != std::string::npos) {
      for (const std::string& folder : levels(roots, "/sys/fs/cgroup/" + controllers, path)) {
        take_memory(read_number(folder + "/memory.limit_in_bytes"), read_number(folder + "/memory.usage_in_bytes"),
                    read_entry(folder + "/memory.stat", "total_inactive_file"), &group);
      }
    }
  }
  return group;
}

}  // namespace sluice::cli::doctor
