// The GPU that is measured, and how programs are started on it: on the plain driver, through MPS, or under Sluice.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "options.h"
#include "sluice/base/status.h"

namespace sluice::bench {

struct Machine {
  std::string device;                          // its name, as the driver says
  std::string uuid;                            // "GPU-..."
  bool simulated = false;                      // it is the emulator's
  double real_per_shown = 1;                   // real seconds that one second of the device's time takes
  std::string bin_directory;                   // of this program and its siblings
  std::string runtime_directory;               // SLUICE_RUNTIME_DIR of everything started here
  std::map<std::string, std::string> plain;    // environment of a program on the plain driver
  std::map<std::string, std::string> managed;  // environment of `sluice run`
};

// Directory of the running program.
std::string own_directory();

// Prints the device that the driver in this process's environment offers as a line of JSON, for find_machine(), which
// asks a child so that this process never holds a context. Returns the exit code.
int describe_device_main();

// Finds the GPU, or takes the emulator where there is none (then says so on standard error), and makes a runtime
// directory that nobody else uses unless the caller has set one. Errors: kUnavailable.
Result<Machine> find_machine(const Options& options);

// Ends the daemon of a runtime directory made by find_machine() and removes the directory.
void clean_up(const Machine& machine);

// The daemon of MPS, alive while this object is. REQUIRES: no GPU programs of the caller run.
class Mps {
 public:
  Mps() = default;
  ~Mps();
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;

  // Errors: kUnavailable when nvidia-cuda-mps-control is missing or does not start.
  Status start(const Machine& machine);
  const std::string& pipe_directory() const { return pipe_; }
  // What a client needs besides Machine::plain: the lower of the two client priorities for a job below `highest`, and
  // its cap of SMs.
  std::map<std::string, std::string> client_environment(const JobSpec& job, std::int32_t highest) const;

 private:
  std::string pipe_;
};

}  // namespace sluice::bench
