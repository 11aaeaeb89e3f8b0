// Fills in the facts: reads NVML, /proc, /sys, the boards and the daemon. Changes nothing, but may make the runtime
// directory and set SLUICE_NVML in this process (machine.h). Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "../installation.h"
#include "facts.h"

namespace sluice::cli::doctor {

// Where files are read from.
struct Roots {
  std::string root;  // in front of /proc, /sys and /dev: "" on the machine itself
  struct Space {
    std::uint64_t total_bytes, free_bytes;
  };
  // Of the file system at a path; nothing where there is none.
  std::function<std::optional<Space>(const std::string& path)> space;
};
Roots roots_at(std::string root);

Facts collect(const Installation& installation, const Roots& roots);

// The parts of collect(), each a file. `nvml` gets the library that was opened, if any.
DriverFacts collect_driver(const Installation& installation, const Roots& roots, std::shared_ptr<health::Nvml>* nvml);
std::vector<CardFacts> collect_cards(const health::Nvml& nvml, const Roots& roots);
HostFacts collect_host(const Roots& roots);
CgroupFacts collect_cgroup(const Roots& roots);
SluiceFacts collect_sluice(const Installation& installation);

// "0-3,8" as the kernel writes it; what cannot be read is left out.
std::set<int> parse_cpus(const std::string& list);
// A process as /proc has it.
ProcessFacts process_at(const Roots& roots, pid_t pid);

// A file's text without its last newline; nothing when it cannot be read.
std::optional<std::string> read_text(const std::string& path);
std::optional<std::uint64_t> read_number(const std::string& path);  // decimal; nothing for "max" and other words
// The number behind `key` and a space in a file of such lines.
std::optional<std::uint64_t> read_entry(const std::string& path, const std::string& key);

}  // namespace sluice::cli::doctor
