#include "elsewhere.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace sluice::cli {
namespace {

// Options of `run` of docker, podman and nerdctl. One that is in neither list makes the image's place uncertain.
const std::set<std::string_view>& flags() {
  static const std::set<std::string_view> all = {"--detach",
                                                 "--disable-content-trust",
                                                 "--env-host",
                                                 "--help",
                                                 "--http-proxy",
                                                 "--init",
                                                 "--insecure-registry",
                                                 "--interactive",
                                                 "--no-healthcheck",
                                                 "--no-hostname",
                                                 "--no-hosts",
                                                 "--oom-kill-disable",
                                                 "--passwd",
                                                 "--privileged",
                                                 "--publish-all",
                                                 "--quiet",
                                                 "--read-only",
                                                 "--read-only-tmpfs",
                                                 "--replace",
                                                 "--rm",
                                                 "--rmi",
                                                 "--sig-proxy",
                                                 "--tls-verify",
                                                 "--tty",
                                                 "--use-api-socket"};
  return all;
}
constexpr std::string_view kShortFlags = "diPqt";

const std::set<std::string_view>& valued() {
  static const std::set<std::string_view> all = {"--add-host",
                                                 "--annotation",
                                                 "--arch",
                                                 "--attach",
                                                 "--authfile",
                                                 "--blkio-weight",
                                                 "--blkio-weight-device",
                                                 "--cap-add",
                                                 "--cap-drop",
                                                 "--cgroup-conf",
                                                 "--cgroup-parent",
                                                 "--cgroupns",
                                                 "--cgroups",
                                                 "--cidfile",
                                                 "--conmon-pidfile",
                                                 "--cpu-count",
                                                 "--cpu-percent",
                                                 "--cpu-period",
                                                 "--cpu-quota",
                                                 "--cpu-rt-period",
                                                 "--cpu-rt-runtime",
                                                 "--cpu-shares",
                                                 "--cpus",
                                                 "--cpuset-cpus",
                                                 "--cpuset-mems",
                                                 "--creds",
                                                 "--decryption-key",
                                                 "--detach-keys",
                                                 "--device",
                                                 "--device-cgroup-rule",
                                                 "--device-read-bps",
                                                 "--device-read-iops",
                                                 "--device-write-bps",
                                                 "--device-write-iops",
                                                 "--dns",
                                                 "--dns-opt",
                                                 "--dns-option",
                                                 "--dns-search",
                                                 "--domainname",
                                                 "--entrypoint",
                                                 "--env",
                                                 "--env-file",
                                                 "--env-merge",
                                                 "--expose",
                                                 "--gidmap",
                                                 "--gpus",
                                                 "--group-add",
                                                 "--group-entry",
                                                 "--health-cmd",
                                                 "--health-interval",
                                                 "--health-log-destination",
                                                 "--health-on-failure",
                                                 "--health-retries",
                                                 "--health-start-interval",
                                                 "--health-start-period",
                                                 "--health-timeout",
                                                 "--hooks-dir",
                                                 "--hostname",
                                                 "--hostuser",
                                                 "--image-volume",
                                                 "--init-path",
                                                 "--io-maxbandwidth",
                                                 "--io-maxiops",
                                                 "--ip",
                                                 "--ip6",
                                                 "--ipc",
                                                 "--isolation",
                                                 "--kernel-memory",
                                                 "--label",
                                                 "--label-file",
                                                 "--link",
                                                 "--link-local-ip",
                                                 "--log-driver",
                                                 "--log-opt",
                                                 "--mac-address",
                                                 "--memory",
                                                 "--memory-reservation",
                                                 "--memory-swap",
                                                 "--memory-swappiness",
                                                 "--mount",
                                                 "--name",
                                                 "--net",
                                                 "--net-alias",
                                                 "--network",
                                                 "--network-alias",
                                                 "--oom-score-adj",
                                                 "--os",
                                                 "--passwd-entry",
                                                 "--personality",
                                                 "--pid",
                                                 "--pidfile",
                                                 "--pids-limit",
                                                 "--platform",
                                                 "--pod",
                                                 "--pod-id-file",
                                                 "--preserve-fd",
                                                 "--preserve-fds",
                                                 "--publish",
                                                 "--pull",
                                                 "--rdt-class",
                                                 "--requires",
                                                 "--restart",
                                                 "--retry",
                                                 "--retry-delay",
                                                 "--runtime",
                                                 "--sdnotify",
                                                 "--seccomp-policy",
                                                 "--secret",
                                                 "--security-opt",
                                                 "--shm-size",
                                                 "--shm-size-systemd",
                                                 "--snapshotter",
                                                 "--stop-signal",
                                                 "--stop-timeout",
                                                 "--storage-opt",
                                                 "--subgidname",
                                                 "--subuidname",
                                                 "--sysctl",
                                                 "--systemd",
                                                 "--timeout",
                                                 "--tmpfs",
                                                 "--tz",
                                                 "--uidmap",
                                                 "--ulimit",
                                                 "--umask",
                                                 "--unsetenv",
                                                 "--user",
                                                 "--userns",
                                                 "--uts",
                                                 "--variant",
                                                 "--volume",
                                                 "--volume-driver",
                                                 "--volumes-from",
                                                 "--workdir"};
  return all;
}
constexpr std::string_view kShortValued = "acehlmpuvw";

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_engine(const std::string& name) { return name == "docker" || name == "podman" || name == "nerdctl"; }

void take(Elsewhere* found, std::string_view option, const std::string& value) {
  constexpr std::string_view kLibraryPath = "LD_LIBRARY_PATH=";
  if (option == "--pid") {
    found->shares_pids = value == "host";
    if (!found->shares_pids) found->unsure = "it has --pid " + value + ", and the board needs --pid=host";
  } else if (option == "--user" || option == "-u") {
    found->user = value;
  } else if (option == "--gpus" || option == "--device" || option == "--runtime") {
    found->has_gpu = true;
  } else if ((option == "--env" || option == "-e") && value.starts_with(kLibraryPath)) {
    found->library_path = value.substr(kLibraryPath.size());
  }
}

// Reads the options from `at` on and finds the image behind them.
void read_run(const std::vector<std::string>& command, std::size_t at, Elsewhere* found) {
  for (; at < command.size(); ++at) {
    const std::string& word = command[at];
    if (word.size() < 2 || word[0] != '-') {
      if (found->unsure.empty()) found->image = at;
      return;
    }
    if (word == "--") break;
    if (word.starts_with("--")) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const bool has_value = valued().contains(name);
      if (!has_value && !flags().contains(name)) {
        found->unsure = "its option " + name + " is not known";
        return;
      }
      if (!has_value) {
        if (name == "--privileged") found->has_gpu = true;
      } else if (equals != word.npos) {
        take(found, name, word.substr(equals + 1));
      } else if (++at < command.size()) {
        take(found, name, command[at]);
      }
      continue;
    }
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (kShortFlags.find(word[i]) != kShortFlags.npos) continue;
      if (kShortValued.find(word[i]) == kShortValued.npos) {
        found->unsure = "its option -" + word.substr(i, 1) + " is not known";
        return;
      }
      std::string value = word.substr(i + 1);
      if (value.empty() && ++at < command.size()) value = command[at];
      if (value.starts_with('=')) value.erase(0, 1);
      take(found, "-" + word.substr(i, 1), value);
      break;
    }
  }
  if (found->unsure.empty()) found->unsure = "no image is named";
}

Elsewhere read_container(const std::vector<std::string>& command, std::size_t at) {
  Elsewhere found;
  found.program = base_name(command[at++]);
  if (at < command.size() && command[at] == "container") ++at;
  const std::string verb = at < command.size() ? command[at] : "";
  if (verb == "run") {
    read_run(command, at + 1, &found);
  } else if (verb.starts_with('-')) {
    found.unsure = "options stand before its \"run\", such as those for another machine";
  } else if (verb == "compose") {
    found.unsure =
        "a compose file says what containers get: its service needs the same as pid, volumes and environment";
  } else {
    found.unsure = "\"" + verb + "\" is no run";
  }
  return found;
}

// Whether the verb starts a program at all: `docker ps` is nobody's job.
bool starts_something(const std::vector<std::string>& command, std::size_t at) {
  static const std::set<std::string_view> all = {"run", "exec", "start", "create", "compose", "container"};
  const auto is_verb = [](const std::string& word) { return all.contains(word); };
  return std::any_of(command.begin() + static_cast<std::ptrdiff_t>(at) + 1, command.end(), is_verb);
}

// Where the host stands in an ssh command; the command's size if it does not.
std::size_t ssh_host(const std::vector<std::string>& command) {
  constexpr std::string_view kValued = "BbcDEeFIiJLlmOoPpQRSWw";
  for (std::size_t at = 1; at < command.size(); ++at) {
    const std::string& word = command[at];
    if (word.size() < 2 || word[0] != '-') return at;
    if (word == "--") return at + 1;
    const std::size_t option = word.find_first_of(kValued, 1);
    if (option == word.size() - 1) ++at;
  }
  return command.size();
}

}  // namespace

std::optional<Elsewhere> elsewhere(const std::vector<std::string>& command, const std::vector<std::string>& run_words) {
  const std::string program = base_name(command[0]);
  if (is_engine(program) && starts_something(command, 0)) return read_container(command, 0);
  if (program == "docker-compose" || program == "podman-compose") {
    Elsewhere found = read_container({"docker", "compose"}, 0);
    found.program = program;
    return found;
  }
  if (program == "sudo" && command.size() > 2 && is_engine(base_name(command[1])) && starts_something(command, 1)) {
    Elsewhere found;
    found.program = base_name(command[1]);
    found.unsure = "sudo passes the job's variables on to nobody: write sudo before sluice";
    return found;
  }
  Elsewhere found;
  found.kind = Elsewhere::Kind::kMachine;
  found.program = program;
  if (program == "ssh") {
    const std::size_t host = ssh_host(command);
    if (host >= command.size()) return std::nullopt;
    found.instead.assign(command.begin(), command.begin() + static_cast<std::ptrdiff_t>(host) + 1);
    found.instead.insert(found.instead.end(), run_words.begin(), run_words.end());
    if (host + 1 < command.size()) {
      found.instead.insert(found.instead.end(), command.begin() + static_cast<std::ptrdiff_t>(host) + 1, command.end());
    } else {
      found.instead.push_back("COMMAND");
    }
    return found;
  }
  if (program == "srun") {
    found.instead = {"srun", "OPTIONS..."};
    found.instead.insert(found.instead.end(), run_words.begin(), run_words.end());
    found.instead.push_back("COMMAND");
    return found;
  }
  return std::nullopt;
}

std::vector<std::string> container_options(const Elsewhere& command, const ContainerNeeds& needs) {
  std::vector<std::string> options;
  // A process is known on the board by its number on this machine.
  if (!command.shares_pids) options.push_back("--pid=host");
  const auto mount = [&](const std::string& folder, const char* how) {
    options.insert(options.end(), {"-v", folder + ":" + folder + how});
  };
  mount(needs.shim_dir, ":ro");
  if (!needs.limit_dir.empty()) mount(needs.limit_dir, ":ro");
  mount(needs.runtime_dir, "");
  std::vector<std::string> variables = {"SLUICE_BOARDS", "SLUICE_JOB", "SLUICE_BATCH_HINT_FILE",
                                        "CUDA_VISIBLE_DEVICES"};
  if (!needs.emulator_dir.empty()) {
    mount(needs.emulator_dir, ":ro");
    variables.insert(variables.end(), {"SLUICE_DRIVER", "SLUICE_NVML"});
  }
  if (!needs.mps_pipe_dir.empty()) {
    options.push_back("--ipc=host");  // as NVIDIA asks for: clients and server share memory
    if (needs.mps_pipe_dir.compare(0, needs.runtime_dir.size() + 1, needs.runtime_dir + "/") != 0)
      mount(needs.mps_pipe_dir, "");
    variables.insert(variables.end(),
                     {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"});
  }
  for (std::string& name : variables) options.insert(options.end(), {"-e", std::move(name)});
  // What NVIDIA's images set, which this takes the place of.
  constexpr char kOfImages[] = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64";
  options.insert(options.end(),
                 {"-e", "LD_LIBRARY_PATH=" + needs.shim_dir + (needs.limit_dir.empty() ? "" : ":" + needs.limit_dir) +
                            ":" + command.library_path.value_or(kOfImages)});
  return options;
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace sluice::cli
