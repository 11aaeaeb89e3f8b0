#include "collect.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "../job_slots.h"
#include "../machine.h"
#include "sluice/board.h"
#include "sluice/control.h"

namespace sluice::cli::doctor {
namespace {

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ..." or "... Open Kernel Module for x86_64  580.95.05
// ...": the first word that looks like a version.
std::string module_version(const std::string& text) {
  for (std::size_t at = 0; at < text.size() && text[at] != '\n';) {
    const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    std::string word = text.substr(at, end - at);
    const std::size_t dot = word.find('.');
    if (dot != std::string::npos && dot >= 3 && word.find_first_not_of("0123456789.") == std::string::npos) return word;
    at = text.find_first_not_of(" \t", end);
  }
  return "";
}

// What stands behind "libcuda.so." in the name that the link leads to.
std::string library_version(const std::string& library) {
  char path[PATH_MAX];
  if (library.empty() || realpath(library.c_str(), path) == nullptr) return "";
  const std::string name = path;
  constexpr std::string_view kBefore = ".so.";
  const std::size_t at = name.rfind(kBefore);
  const std::string version = at == std::string::npos ? "" : name.substr(at + kBefore.size());
  return version.find('.') == std::string::npos ? "" : version;  // "1" is no driver's
}

std::vector<std::string> forbidden_files(const std::string& folder) {
  std::vector<std::string> forbidden;
  for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia0"}) {
    const std::string path = folder + "/" + name;
    if (access(path.c_str(), R_OK | W_OK) != 0 && errno == EACCES) forbidden.push_back(path);
  }
  return forbidden;
}

std::optional<ProcessFacts> find_mps(const Roots& roots) {
  const std::string proc = roots.root + "/proc";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(proc.c_str()), &closedir);
  if (folder == nullptr) return std::nullopt;
  while (const dirent* entry = readdir(folder.get())) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    // nvidia-cuda-mps-control and nvidia-cuda-mps-server, of which the kernel keeps fifteen letters.
    const std::optional<std::string> name = read_text(proc + "/" + entry->d_name + "/comm");
    if (name && name->starts_with("nvidia-cuda-mps")) return process_at(roots, std::atoi(entry->d_name));
  }
  return std::nullopt;
}

void add_processes(const Result<std::vector<health::Process>>& listed, const Roots& roots, CardFacts* card) {
  if (!listed.ok()) return;
  for (const health::Process& process : *listed) {
    bool known = false;  // one that computes and draws is in both lists
    for (const ProcessFacts& other : card->processes) known |= other.pid == process.pid;
    if (known) continue;
    card->processes.push_back(process_at(roots, process.pid));
    card->processes.back().memory_bytes = process.memory_bytes;
  }
}

}  // namespace

DriverFacts collect_driver(const Installation& installation, const Roots& roots, std::shared_ptr<health::Nvml>* nvml) {
  DriverFacts driver;
  const Result<DriverChoice> choice = choose_driver(installation);
  if (!choice.ok()) {
    driver.cuda_error = choice.status().message();
  } else {
    driver.cuda_library = choice->path;
    driver.cuda_error = choice->missing.message();
    driver.simulated = choice->simulated;
  }
  Result<std::shared_ptr<health::Nvml>> opened = health::Nvml::open();
  if (opened.ok()) {
    *nvml = *opened;
    driver.nvml_library = (*nvml)->library();
    const health::Driver behind = (*nvml)->driver();
    driver.version = behind.version;
    driver.cuda_version = behind.cuda_version;
  } else {
    driver.nvml_error = opened.status().message();
  }
  driver.library_version = library_version(driver.cuda_library);
  driver.module_version = module_version(read_text(roots.root + "/proc/driver/nvidia/version").value_or(""));
  if (const auto only = read_entry(roots.root + "/proc/driver/nvidia/params", "RmProfilingAdminOnly:"))
    driver.counters_for_root_only = *only != 0;
  driver.forbidden_files = forbidden_files(roots.root + "/dev");
  return driver;
}

std::vector<CardFacts> collect_cards(const health::Nvml& nvml, const Roots& roots) {
  std::vector<CardFacts> cards;
  Result<std::vector<health::Device>> devices = nvml.devices();
  if (!devices.ok()) return cards;
  for (health::Device& device : *devices) {
    CardFacts card;
    card.device = std::move(device);
    if (!card.device.uuid.empty()) {
      Result<health::Vitals> vitals = nvml.vitals(card.device.uuid);
      if (vitals.ok()) {
        card.vitals = std::move(*vitals);
      } else {
        card.device.error = vitals.status().message();
      }
      const auto compute = nvml.compute_processes(card.device.uuid);
      card.processes_known = compute.ok();
      add_processes(compute, roots, &card);
      add_processes(nvml.graphics_processes(card.device.uuid), roots, &card);
    }
    if (card.vitals && !card.vitals->pci.empty()) {
      const std::string bus = roots.root + "/sys/bus/pci/devices/" + card.vitals->pci;
      if (const auto node = read_text(bus + "/numa_node"); node && !node->empty())
        card.numa_node = std::atoi(node->c_str());
      card.near_cpus = parse_cpus(read_text(bus + "/local_cpulist").value_or(""));
      const auto lanes = [](const std::string& path) -> std::optional<unsigned> {
        const auto width = read_number(path);
        // A port that is not one says 0 or 255.
        return width && *width > 0 && *width <= 32 ? std::optional<unsigned>(static_cast<unsigned>(*width))
                                                   : std::nullopt;
      };
      card.card_width = lanes(bus + "/max_link_width");
      card.slot_width = lanes(bus + "/../max_link_width");  // the entry is a link into the tree of bridges
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

HostFacts collect_host(const Roots& roots) {
  HostFacts host;
  host.is_root = geteuid() == 0;
  host.online_cpus = parse_cpus(read_text(roots.root + "/sys/devices/system/cpu/online").value_or(""));
  std::optional<std::string> status = read_text(roots.root + "/proc/self/status");
  constexpr std::string_view kAllowed = "\nCpus_allowed_list:";
  if (const std::size_t at = status ? status->find(kAllowed) : std::string::npos; at != std::string::npos) {
    const std::size_t from = status->find_first_not_of(" \t", at + kAllowed.size());
    host.allowed_cpus = parse_cpus(status->substr(from, status->find('\n', from) - from));
  }
  if (const auto space = roots.space(roots.root + "/dev/shm")) {
    host.shm_total_bytes = space->total_bytes;
    host.shm_free_bytes = space->free_bytes;
  }
  host.cgroup = collect_cgroup(roots);
  host.mps = find_mps(roots);
  return host;
}

SluiceFacts collect_sluice(const Installation& installation) {
  SluiceFacts sluice;
  sluice.version = SLUICE_VERSION;
  const std::string shim = installation.shim_dir + "/libcuda.so.1";
  if (file_exists(shim)) sluice.shim = shim;
  char runtime_dir[PATH_MAX];
  if (Status status = board::runtime_directory(runtime_dir, sizeof runtime_dir); !status.ok()) {
    sluice.runtime_error = status.message();
    return sluice;
  }
  const Boards boards = Boards::open_all(runtime_dir);
  sluice.bad_boards = boards.unusable();
  std::set<std::uint64_t> jobs;
  for (const board::Board* board : boards.all()) {
    for (const BoardJob& job : live_jobs(*board)) jobs.insert(job.id);
  }
  sluice.live_jobs = jobs.size();
  const Result<control::Json> hello = control::request(runtime_dir, {{"op", "hello"}});
  if (hello.ok()) {
    const control::Json pid = hello->value("pid", control::Json()), version = hello->value("version", control::Json());
    if (pid.is_number_integer()) sluice.daemon = pid.get<pid_t>();
    if (version.is_string()) sluice.daemon_version = version.get<std::string>();
  } else if (hello.status().code() != Code::kUnavailable) {
    sluice.daemon_error = hello.status().message();
  }
  return sluice;
}

Facts collect(const Installation& installation, const Roots& roots) {
  Facts facts;
  std::shared_ptr<health::Nvml> nvml;
  facts.driver = collect_driver(installation, roots, &nvml);
  if (nvml != nullptr) facts.cards = collect_cards(*nvml, roots);
  facts.host = collect_host(roots);
  facts.sluice = collect_sluice(installation);
  return facts;
}

}  // namespace sluice::cli::doctor
