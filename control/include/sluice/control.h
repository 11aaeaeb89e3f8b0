// Messages between the command line and the daemon, over a Unix socket in the runtime directory.
//
// Wire: one JSON object a line, UTF-8, at most kMaxMessageBytes, the newline included. A request carries "v" (protocol
// version) and "op"; a reply carries "v" and either the operation's keys or "error": {"code", "message"}, where code
// is a gRPC name such as "NOT_FOUND". A connection carries any number of requests, one after the other. Only
// processes of the same user are answered; in a group's directory (sluice/base/sharing.h), those of its members.
// docs/control.md lists the operations and their keys.
//
// Thread safety: free functions are thread safe; a Server belongs to the thread that runs its io_context, except
// where a member says otherwise.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/clock.h"
#include "sluice/base/status.h"

namespace boost::asio {
class io_context;
}

namespace sluice::control {

using Json = nlohmann::json;

inline constexpr int kProtocol = 1;
inline constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 20;
inline constexpr int kMaxDepth = 32;  // of nested arrays and objects in a message

// Names inside the runtime directory.
inline constexpr char kSocketName[] = "control.sock";
inline constexpr char kDaemonLockName[] = "sluiced.lock";
inline constexpr char kBoardsLockName[] = "boards.lock";
inline constexpr char kLogName[] = "sluiced.log";
inline constexpr char kLoadedPrefix[] = "loaded-";  // and a user's number: which shim could be loaded

inline constexpr char kBatchHintPrefix[] = "batch-hint-";  // and a job's id: the part of its batch that it should take
inline constexpr char kOutOfUsePrefix[] = "out-of-use-";   // and a GPU's UUID: why no job starts there

// ---- locks ----------------------------------------------------------------------------------------------------

// A lock on a file (flock): released by the destructor and by the process's death. The file may be removed by who
// holds it exclusively; an acquirer notices and locks the new one. Move only.
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };

  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  // Creates `path` (0600; 0660 in a group's directory) if missing. Waits up to `timeout_ns`; 0 tries once. Never
  // follows a symbolic link. Errors: kDeadlineExceeded when another holds it; kPermissionDenied, kNotFound (no such
  // directory), kInternal.
  static Result<FileLock> acquire(const std::string& path, Mode mode, std::uint64_t timeout_ns);

  bool held() const { return fd_ >= 0; }
  // Replaces the file's content by `text`. REQUIRES: held exclusively.
  void write(std::string_view text);
  // Whether the path still names the file that is held: somebody may have removed or replaced it.
  bool has_file() const;
  // Removes the file, still holding it; one that took its place stays. REQUIRES: held exclusively.
  void remove_file();
  void release();

 private:
  int fd_ = -1;
  std::string path_;
};

// Held shared by who maps a board and takes a slot on it, from before ensure_daemon() until the slot is taken: as
// long as anybody holds it no daemon removes boards or exits for idleness. Waits at most two seconds.
Result<FileLock> hold_boards(const std::string& runtime_dir);

// ---- notices --------------------------------------------------------------------------------------------------

// One line that the daemon leaves in the runtime directory for others, in a file of its own that is always whole.
// Errors: kPermissionDenied, kInternal.
Status write_notice(const std::string& runtime_dir, const std::string& name, const std::string& text);
// The line; nothing where there is none, or where it is not by the directory's owner or root.
std::optional<std::string> read_notice(const std::string& runtime_dir, const std::string& name);
void remove_notice(const std::string& runtime_dir, const std::string& name);
// Names that begin with `prefix`.
std::vector<std::string> notices(const std::string& runtime_dir, const std::string& prefix);

// ---- client ---------------------------------------------------------------------------------------------------

// Sends `request` ({"op": ...}; "v" is added) to the daemon of `runtime_dir` and returns its reply.
// Errors: kUnavailable when no daemon answers there; kDeadlineExceeded; kPermissionDenied when a process of neither the
// directory's owner nor root listens; the daemon's own error otherwise.
Result<Json> request(const std::string& runtime_dir, Json message, std::uint64_t timeout_ns = 2 * kNanosPerSecond);

struct DaemonStart {
  std::string runtime_dir;        // must exist
  std::string program;            // absolute path of sluiced
  std::vector<std::string> args;  // options for it; --foreground is added
  std::uint64_t timeout_ns = 2 * kNanosPerSecond;
  bool for_group = false;  // start it also in a group's directory, whose daemon is the administrator's to start
};
// Connects to the daemon of the runtime directory, or starts one, detached from the caller (own session, working
// directory /, no inherited descriptors, standard error in <runtime_dir>/sluiced.log), and waits until it answers.
// However many processes call this at once, one daemon remains. Returns the reply to "hello": {"version", "pid"}.
// Errors: kUnavailable when it cannot be started, or may not; kDeadlineExceeded when it does not answer in time.
Result<Json> ensure_daemon(const DaemonStart& start);

// ---- messages -------------------------------------------------------------------------------------------------

// Checks and parses one line (without its newline) as a request: an object with "v" == kProtocol and a text "op".
// Errors: kInvalidArgument; kFailedPrecondition for another protocol version.
Result<Json> parse_request(std::string_view line);

// Checks and parses one line as a reply; an "error" in it becomes the returned status.
Result<Json> parse_reply(std::string_view line);

// A line to send, newline included; text that is not UTF-8 is replaced. Errors: kResourceExhausted when too long.
Result<std::string> to_line(Json message);

// {"error": {"code", "message"}}.
Json error_reply(const Status& status);

// ---- server ---------------------------------------------------------------------------------------------------

class Server {
 public:
  // Answers one request; to be called exactly once, from any thread. A reply that came too late is dropped.
  using Reply = std::function<void(Json)>;
  // Runs on the io_context's thread and must not block; it may keep `reply` for later. Must not throw. `user` is whose
  // process asks.
  using Handler = std::function<void(const Json& request, uid_t user, Reply reply)>;

  struct Limits {
    std::size_t connections = 128;                    // one more is closed at once
    std::uint64_t silence_ns = 30 * kNanosPerSecond;  // a connection silent for so long is closed
  };

  // Listens on <runtime_dir>/control.sock, replacing a stale socket. REQUIRES: the caller holds the daemon lock.
  // Errors: kPermissionDenied, kNotFound, kInternal.
  static Result<std::unique_ptr<Server>> listen(boost::asio::io_context& io, const std::string& runtime_dir,
                                                Handler handler, Limits limits);
  static Result<std::unique_ptr<Server>> listen(boost::asio::io_context& io, const std::string& runtime_dir,
                                                Handler handler) {
    return listen(io, runtime_dir, std::move(handler), Limits());
  }
  ~Server();  // stops listening, closes every connection, removes the socket

  // Replies still owed by the handler's side.
  std::size_t pending() const;

  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::control
