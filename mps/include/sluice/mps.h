// NVIDIA's Multi-Process Service (MPS): its daemon, found, started and ended through nvidia-cuda-mps-control.
//
// A daemon is known by its pipe directory. Programs whose CUDA_MPS_PIPE_DIRECTORY names it are its clients; it starts a
// server for their user. Sluice joins the user's own daemon where one answers. Else it starts one whose directory lies
// in the runtime directory, `mps-<uid>`, the user's alone; that one is ended when nobody uses it any more, by the last
// `sluice run` or, where that was killed, by sluiced or the next run.
//
// Every call here may take seconds: it runs the control program and waits for it. Thread safe.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/status.h"
#include "sluice/control.h"

namespace sluice::mps {

inline constexpr char kPipeVariable[] = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr char kLogVariable[] = "CUDA_MPS_LOG_DIRECTORY";
inline constexpr char kPriorityVariable[] = "CUDA_MPS_CLIENT_PRIORITY";             // 0 normal, 1 below normal
inline constexpr char kPercentageVariable[] = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";  // of the SMs, more than 0 to 100
inline constexpr char kDefaultPipeDirectory[] = "/tmp/nvidia-mps";

// ---- one daemon -----------------------------------------------------------------------------------------------

struct Server {
  pid_t pid = 0;
  std::vector<pid_t> clients;  // processes with a context
};

// The servers of the daemon at `pipe_directory` with their clients; none before the first client came.
// Errors: kUnavailable without the control program; kNotFound when no daemon answers there; kDeadlineExceeded;
// kInternal.
Result<std::vector<Server>> servers(const std::string& pipe_directory);

// Starts a daemon for all GPUs and returns when it answers. `directory` must exist: its folder `pipe` becomes the pipe
// directory, `log` holds what the daemon writes. Errors: as above.
Status start(const std::string& directory);
std::string pipe_directory_in(const std::string& directory);

// Ends the daemon at `pipe_directory` with its servers. Errors: as above.
Status quit(const std::string& pipe_directory);

// Ends the GPU work of a client, which from then on gets errors from CUDA; the process itself runs on. To be called
// before a signal ends a client that has work outstanding: else the server and its other clients may go with it.
// Errors: as above.
Status terminate_client(const std::string& pipe_directory, pid_t server, pid_t client);

// ---- whose it is ----------------------------------------------------------------------------------------------

// A use of a daemon: while it lives, no daemon of Sluice's own is ended. Move only; not inherited by programs.
struct Use {
  std::string pipe_directory;
  bool own = false;      // Sluice started it
  bool started = false;  // by this call
  control::FileLock lock;
};

// Joins the daemon at `callers_directory` (what CUDA_MPS_PIPE_DIRECTORY says, if it says anything; else the default
// one) where one answers, else Sluice's own, which is started if need be. However many callers there are at once, one
// is started. Errors: kUnavailable when there is no control program or the daemon does not start, or a server of
// another user's has the daemon; kPermissionDenied when the directory is not the caller's alone.
Result<Use> use(const std::string& runtime_dir, const std::optional<std::string>& callers_directory);

// Whether there is a daemon of Sluice's own, or what is left of one. Cheap.
bool has_own(const std::string& runtime_dir);

enum class End { kNothing, kInUse, kEnded };
// Ends Sluice's own daemon and removes its directory, unless it is in use: by a Use, by a client, or by a process whose
// environment names it. Errors: those of quit().
Result<End> end_unused(const std::string& runtime_dir);

// ---- what the control program says ----------------------------------------------------------------------------

// The process numbers of a reply, one a line; other lines are left out.
std::vector<pid_t> parse_pids(std::string_view reply);

}  // namespace sluice::mps
