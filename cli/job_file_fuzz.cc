// Any bytes as a job file: parsed or refused with one line that names the file, never a crash.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "job_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto jobs = sluice::cli::parse_job_file({reinterpret_cast<const char*>(data), size}, "jobs.toml");
  if (!jobs.ok()) {
    if (std::strncmp(jobs.status().message(), "jobs.toml:", 10) != 0) std::abort();
    return 0;
  }
  for (const auto& job : *jobs) {
    if (job.command.empty() || job.name.empty() || job.share == 0) std::abort();
  }
  return 0;
}
