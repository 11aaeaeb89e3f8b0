#include "processes.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "elf_paths.h"
#include "sluice/base/clock.h"
#include "sluice/board.h"

namespace sluice::cli {
namespace {

std::string proc_path(pid_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

// Empty when the process is gone or not ours to read.
std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string link_target(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t got = readlink(path.c_str(), target, sizeof target);
  return {target, got > 0 ? static_cast<std::size_t>(got) : 0};
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder.get())) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0) pids.push_back(pid);
  }
  return pids;
}

bool contains_folder(const std::string& list, const std::string& folder) {
  return (":" + list + ":").find(":" + folder + ":") != std::string::npos;
}

// When a process started, on the clock of now_ns(), to the tick (10 ms as a rule).
std::uint64_t start_ns(ProcessIdentity identity) {
  const std::uint64_t ticks = identity >> kPidBits;
  timespec boot;
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const std::uint64_t boot_now =
      static_cast<std::uint64_t>(boot.tv_sec) * kNanosPerSecond + static_cast<std::uint64_t>(boot.tv_nsec);
  const std::uint64_t asleep = boot_now - std::min(boot_now, now_ns());  // suspend counts in one and not in the other
  const std::uint64_t started = ticks * (kNanosPerSecond / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
  return started - std::min(started, asleep);
}

}  // namespace

std::optional<std::string> variable_of(pid_t pid, const std::string& name) {
  const std::string all = read_all(proc_path(pid, "environ"));
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\0', at), all.size());
    if (all.compare(at, name.size() + 1, name + "=") == 0)
      return all.substr(at + name.size() + 1, end - at - name.size() - 1);
    at = end + 1;
  }
  return std::nullopt;
}

bool dies_of(pid_t pid, int signal) {
  const std::string status = read_all(proc_path(pid, "status"));
  if (status.empty()) return false;
  if (signal == SIGKILL) return true;
  for (const char* mask : {"SigBlk:", "SigIgn:", "SigCgt:"}) {
    const std::size_t at = status.find(mask);
    if (at == std::string::npos) continue;
    const std::uint64_t bits = std::strtoull(status.c_str() + at + std::strlen(mask), nullptr, 16);
    if ((bits >> (signal - 1) & 1) != 0) return false;
  }
  return true;
}

pid_t parent_of(pid_t pid) {
  const std::string stat = read_all(proc_path(pid, "stat"));
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  char state;
  int parent = 0;
  if (name_end == std::string::npos || std::sscanf(stat.c_str() + name_end + 1, " %c %d", &state, &parent) != 2)
    return 0;
  return parent;
}

std::string program_of(pid_t pid) {
  const std::string path = link_target(proc_path(pid, "exe"));
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t replaced = name.rfind(" (deleted)");  // by an upgrade
  return name.substr(0, replaced);
}

std::vector<pid_t> process_tree(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (pid_t pid : all_pids()) children.emplace(parent_of(pid), pid);
  std::vector<pid_t> tree;
  if (identity_of(root) == 0) return tree;
  tree.push_back(root);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const auto [from, to] = children.equal_range(tree[i]);
    for (auto at = from; at != to; ++at) tree.push_back(at->second);
  }
  return tree;
}

std::vector<ProcessIdentity> processes_of_job(std::uint64_t id, pid_t child, std::uint64_t started_ns) {
  std::vector<pid_t> pids = child > 0 ? process_tree(child) : std::vector<pid_t>();
  const std::string wanted = std::to_string(id);
  // Another runtime directory counts its jobs from 1 too; the boards tell whose number it is.
  char directory[PATH_MAX];
  const bool known = board::runtime_directory(directory, sizeof directory).ok();
  const std::string ours = known ? "=" + std::string(directory) + "/" : "";
  for (pid_t pid : all_pids()) {
    if (!known || variable_of(pid, "SLUICE_JOB") != wanted) continue;
    const std::optional<std::string> boards = variable_of(pid, "SLUICE_BOARDS");
    if (boards && boards->find(ours) != std::string::npos) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  const std::uint64_t tick = kNanosPerSecond / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  std::vector<ProcessIdentity> result;
  for (pid_t pid : pids) {
    const ProcessIdentity identity = identity_of(pid);
    // An older process with that pid or number is somebody else's.
    if (identity != 0 && pid != getpid() && start_ns(identity) + 2 * tick >= started_ns) result.push_back(identity);
  }
  return result;
}

std::string why_unseen(pid_t pid, const std::string& shim_dir) {
  const std::string maps = read_all(proc_path(pid, "maps"));
  const std::string executable = link_target(proc_path(pid, "exe"));
  struct stat file;
  const bool privileged = stat(proc_path(pid, "exe").c_str(), &file) == 0 && (file.st_mode & (S_ISUID | S_ISGID)) != 0;
  if (privileged) return "its executable is setuid or setgid, for which the loader ignores LD_LIBRARY_PATH";
  if (maps.empty()) return "it cannot be looked into (another user's, or a process with raised privileges)";
  if (maps.find(shim_dir + "/") != std::string::npos) {
    return variable_of(pid, "SLUICE_BOARDS") ? "the shim is loaded but passes everything through"
                                             : "the shim is loaded but SLUICE_BOARDS was removed from its environment";
  }
  const std::string own_namespace = link_target("/proc/self/ns/mnt");
  const std::string its_namespace = link_target(proc_path(pid, "ns/mnt"));
  if (!its_namespace.empty() && its_namespace != own_namespace)
    return "it runs in a container, which does not see the shim";
  if (maps.find("libcuda.so") == std::string::npos)
    return "it has no libcuda.so of its own (linked statically, or a private road to the driver)";
  const std::string list = variable_of(pid, "LD_LIBRARY_PATH").value_or("");
  if (!contains_folder(list, shim_dir)) return "LD_LIBRARY_PATH was reset on the way to it";
  const std::string rpath = rpath_of(proc_path(pid, "exe"));
  if (!rpath.empty())
    return "its executable has DT_RPATH (" + rpath.substr(0, 80) + "), which comes before LD_LIBRARY_PATH";
  if (list.compare(0, shim_dir.size() + 1, shim_dir + ":") != 0 && list != shim_dir) {
    return "another folder was put in front of the shim in LD_LIBRARY_PATH";
  }
  return "it opened the driver by its path, or LD_PRELOAD brought it in";
}

std::string process_name(pid_t pid) {
  std::string name = read_all(proc_path(pid, "comm"));
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace sluice::cli
