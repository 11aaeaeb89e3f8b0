// Which processes belong to a job, and why one of them uses a GPU without the shim. Reads /proc; thread safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/process.h"

namespace sluice::cli {

// `root` and all its descendants that live now.
std::vector<pid_t> process_tree(pid_t root);

// The processes of job `id`: the tree of `child` (0: none) and every process of the user whose environment names the
// job and a board in this runtime directory, which finds those that were adopted by init. Only processes that started
// at or after `started_ns` count.
std::vector<ProcessIdentity> processes_of_job(std::uint64_t id, pid_t child, std::uint64_t started_ns);

// The likely reason why process `pid` holds a GPU context without a slot on the board, as a clause to put behind
// "because". `shim_dir` is the folder that was put in front of its LD_LIBRARY_PATH.
std::string why_unseen(pid_t pid, const std::string& shim_dir);

// Whether `signal` would end it: it neither handles nor ignores nor blocks it. False when it is gone.
bool dies_of(pid_t pid, int signal);

// A variable of the environment that it started with.
std::optional<std::string> variable_of(pid_t pid, const std::string& name);

std::string process_name(pid_t pid);  // "" when it is gone
pid_t parent_of(pid_t pid);           // 0 when it is gone
// The file name of its executable, which no process can choose for another; "" when it is gone or not ours to read.
std::string program_of(pid_t pid);

}  // namespace sluice::cli
