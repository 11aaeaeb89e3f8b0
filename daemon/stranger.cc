#include "stranger.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string_view>

#include "sluice/base/user.h"

namespace sluice::daemon {
namespace {

constexpr std::string_view kMpsServer = "nvidia-cuda-mps";  // what the kernel keeps of nvidia-cuda-mps-server
constexpr std::string_view kShimPart = "/sluice/shim/libcuda.so";

std::optional<std::string> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The value of `name` in the zero-separated `environment`.
std::optional<std::string> variable(const std::string& environment, std::string_view name) {
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view entry = std::string_view(environment).substr(at, end - at);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
      return std::string(entry.substr(name.size() + 1));
    }
    at = end + 1;
  }
  return std::nullopt;
}

// The path of the first libcuda that the process has mapped, "" if none.
std::string mapped_driver(const std::string& maps) {
  const std::size_t at = maps.find("/libcuda.so");
  if (at == std::string::npos) return "";
  const std::size_t line = maps.rfind('\n', at);
  const std::size_t path = maps.find('/', line == std::string::npos ? 0 : line);
  return maps.substr(path, maps.find('\n', at) - path);
}

std::string reason_of(const std::string& proc, uid_t user) {
  const auto environment = read(proc + "/environ");
  if (!environment && user != geteuid()) return "another user's process";
  if (!environment) return "its environment cannot be read: it changed its user or privileges (setuid)";
  const auto job = variable(*environment, "SLUICE_JOB");
  if (!job) return "started without sluice";
  const std::string of_job = "of job " + *job + ", but ";
  if (variable(*environment, "SLUICE_DISABLE").value_or("") == "1") return of_job + "SLUICE_DISABLE=1 is set";
  const std::string maps = read(proc + "/maps").value_or("");
  if (maps.find(kShimPart) != std::string::npos) return of_job + "its shim took no place on the board";
  const std::string libraries = variable(*environment, "LD_LIBRARY_PATH").value_or("");
  if (libraries.find("/sluice/shim") == std::string::npos) return of_job + "it started with another LD_LIBRARY_PATH";
  const std::string driver = mapped_driver(maps);
  if (driver.empty()) return of_job + "no libcuda.so.1 is loaded in it: it may be linked statically";
  return of_job + "it loaded " + driver + " itself, by DT_RPATH or an absolute path";
}

}  // namespace

Stranger look_at(pid_t pid) {
  Stranger stranger;
  const std::string proc = "/proc/" + std::to_string(pid);
  struct stat info;
  if (stat(proc.c_str(), &info) != 0) {
    stranger.reason = "not visible from here: in another container, or just gone";
    return stranger;
  }
  stranger.user = user_name(info.st_uid);
  if (auto name = read(proc + "/comm"); name && !name->empty()) {
    if (name->back() == '\n') name->pop_back();
    stranger.name = *name;
  }
  stranger.reason =
      stranger.name == kMpsServer ? "the server of MPS: works for its clients" : reason_of(proc, info.st_uid);
  return stranger;
}

}  // namespace sluice::daemon
