#include "machine.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/cuda.h"
#include "process.h"
#include "sluice/base/clock.h"
#include "sluice/board.h"
#include "sluice/driver.h"
#include "sluice/mps.h"

namespace sluice::bench {
namespace {

namespace fs = std::filesystem;

constexpr char kDescribe[] = "--describe-device";  // see main.cc

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> make_runtime_directory() {
  for (const char* base : {"/dev/shm", "/tmp"}) {
    std::string path = std::string(base) + "/sluice-bench-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  return Status::error(Code::kUnavailable, "cannot make a directory in /dev/shm or /tmp: %s", strerror(errno));
}

// Asks a child with the plain environment what device it sees.
Status describe(Machine* machine) {
  Launch launch;
  launch.command = {"/proc/self/exe", kDescribe};
  launch.environment = machine->plain;
  launch.stdout_path = machine->runtime_directory + "/device.json";
  launch.stderr_path = machine->runtime_directory + "/device.err";
  auto child = Process::start(launch);
  if (!child.ok()) return child.status();
  int code = child->wait_or_kill(30);
  std::string line = last_json_line(launch.stdout_path);
  std::string why = tail_of(launch.stderr_path, 1);
  unlink(launch.stdout_path.c_str());
  unlink(launch.stderr_path.c_str());
  auto answer = nlohmann::json::parse(line, nullptr, false);
  if (code != kExitOk || answer.is_discarded()) {
    return Status::error(Code::kUnavailable, "no usable CUDA device: %s", why.c_str());
  }
  machine->device = answer.value("device", "");
  machine->uuid = answer.value("uuid", "");
  machine->simulated = answer.value("simulated", false);
  machine->real_per_shown = answer.value("real_per_shown", 1.0);
  return {};
}

Status use_emulator(const Options& options, Machine* machine) {
  std::string directory = machine->bin_directory + "/../lib/sluice/emulator";
  std::error_code error;
  directory = fs::weakly_canonical(directory, error).string();
  if (!fs::exists(directory + "/libcuda.so.1", error)) {
    return Status::error(Code::kUnavailable,
                         "no CUDA driver, and no emulator at %s: build it, or install it beside this",
                         directory.c_str());
  }
  std::string path = variable("LD_LIBRARY_PATH");
  machine->managed["SLUICE_DRIVER"] = directory + "/libcuda.so.1";
  machine->managed["SLUICE_NVML"] = directory + "/libnvidia-ml.so.1";
  double scale = options.scale;
  if (scale == 0) scale = std::strtod(variable("SLUICE_EMU_SCALE").c_str(), nullptr);
  if (scale <= 0) scale = kDefaultScale;
  machine->managed["SLUICE_EMU_SCALE"] = nlohmann::json(scale).dump();
  machine->plain = machine->managed;
  machine->plain["LD_LIBRARY_PATH"] = path.empty() ? directory : directory + ":" + path;
  return describe(machine);
}

}  // namespace

std::string own_directory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

int describe_device_main() {
  example::Device device;
  if (Status status = example::describe_device(&device); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.message());
    return exit_code(status);
  }
  nlohmann::json line = {{"device", device.name},
                         {"uuid", device.uuid},
                         {"simulated", device.simulated},
                         {"real_per_shown", device.real_per_shown}};
  std::printf("%s\n", line.dump().c_str());
  return kExitOk;
}

Result<Machine> find_machine(const Options& options) {
  Machine machine;
  machine.bin_directory = own_directory();
  machine.runtime_directory = variable("SLUICE_RUNTIME_DIR");
  if (machine.runtime_directory.empty()) {
    auto made = make_runtime_directory();
    if (!made.ok()) return made.status();
    machine.runtime_directory = *made;
    setenv("SLUICE_RUNTIME_DIR", made->c_str(), 1);
  } else {
    std::error_code error;
    fs::create_directories(machine.runtime_directory, error);
    chmod(machine.runtime_directory.c_str(), 0700);
  }

  char path[4096];
  bool have_driver = !options.emulated && driver::find_library(path, sizeof path).ok();
  Status status;
  if (have_driver) {
    status = describe(&machine);
    if (status.ok()) return machine;
    std::fprintf(stderr, "bench_contention: %s\n", status.message());
  }
  status = use_emulator(options, &machine);
  if (!status.ok()) {
    clean_up(machine);
    return status;
  }
  if (!options.emulated) {
    std::fprintf(stderr, "bench_contention: no NVIDIA driver or GPU found; using the simulated %s\n",
                 machine.device.c_str());
  }
  return machine;
}

void clean_up(const Machine& machine) {
  // Only what find_machine() made: a directory that the caller named may serve others.
  if (machine.runtime_directory.find("/sluice-bench-") == std::string::npos) return;
  char path[4096];
  if (!machine.uuid.empty() && board::board_path(machine.uuid.c_str(), path, sizeof path).ok()) {
    if (auto board = board::map(path); board.ok()) {
      ProcessIdentity daemon = (*board)->daemon.load();
      if (is_alive(daemon)) kill(pid_of(daemon), SIGTERM);
      std::uint64_t until = now_ns() + 2 * kNanosPerSecond;
      while (is_alive(daemon) && now_ns() < until) sleep_ns(5 * kNanosPerMilli);
      board::unmap(*board);
    }
  }
  std::error_code error;
  fs::remove_all(machine.runtime_directory, error);
}

Status Mps::start(const Machine& machine) {
  if (machine.simulated) return Status::error(Code::kUnavailable, "the emulator has no MPS: leave --mps out");
  const std::string directory = machine.runtime_directory + "/mps";
  std::error_code error;
  fs::create_directories(directory, error);
  if (Status status = mps::start(directory); !status.ok())
    return Status::error(Code::kUnavailable, "--mps: %s", status.message());
  pipe_ = mps::pipe_directory_in(directory);
  return {};
}

Mps::~Mps() {
  if (pipe_.empty()) return;
  if (Status status = mps::quit(pipe_); !status.ok()) std::fprintf(stderr, "bench_contention: %s\n", status.message());
}

std::map<std::string, std::string> Mps::client_environment(const JobSpec& job, std::int32_t highest) const {
  std::map<std::string, std::string> environment = {{mps::kPipeVariable, pipe_},
                                                    {mps::kPriorityVariable, job.priority < highest ? "1" : "0"}};
  if (job.sm_percentage != 0) environment[mps::kPercentageVariable] = std::to_string(job.sm_percentage);
  return environment;
}

}  // namespace sluice::bench
