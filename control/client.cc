#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sluice/base/sharing.h"
#include "sluice/control.h"
#include "socket_path.h"

namespace sluice::control {
namespace {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  // Waits until the socket is ready for `events`, or gone, or the deadline has passed.
  Status wait(short events, std::uint64_t deadline) const {
    while (true) {
      const std::uint64_t now = now_ns();
      if (now >= deadline) return Status::error(Code::kDeadlineExceeded, "the daemon did not answer in time");
      pollfd watched{fd_, events, 0};
      const std::uint64_t left_ms = (deadline - now + kNanosPerMilli - 1) / kNanosPerMilli;
      const int got = poll(&watched, 1, static_cast<int>(std::min<std::uint64_t>(left_ms, 1000)));
      if (got > 0) return {};
      if (got < 0 && errno != EINTR) return Status::error(Code::kInternal, "poll: %s", std::strerror(errno));
    }
  }

 private:
  int fd_;
};

Status gone(const char* doing) {
  return Status::error(Code::kUnavailable, "the daemon went away while %s: %s", doing, std::strerror(errno));
}

// A full listen queue answers EAGAIN: the daemon is there, only busy.
Status connect_until(const Socket& socket, const SocketPath& path, std::uint64_t deadline) {
  const sockaddr_un address = path.address();
  while (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return Status::error(Code::kUnavailable, "no daemon listens on %.160s: %s", path.text().c_str(),
                           std::strerror(errno));
    }
    if (now_ns() >= deadline) return Status::error(Code::kDeadlineExceeded, "the daemon is too busy to answer");
    sleep_ns(kNanosPerMilli);
  }
  return {};
}

Status send_all(const Socket& socket, std::string_view line, std::uint64_t deadline) {
  while (!line.empty()) {
    const ssize_t sent = send(socket.fd(), line.data(), line.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      line.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (Status status = socket.wait(POLLOUT, deadline); !status.ok()) return status;
    } else if (errno != EINTR) {
      return gone("it was asked");
    }
  }
  return {};
}

Result<std::string> receive_line(const Socket& socket, std::uint64_t deadline) {
  std::string text;
  char buffer[16384];
  while (true) {
    if (Status status = socket.wait(POLLIN, deadline); !status.ok()) return status;
    const ssize_t got = recv(socket.fd(), buffer, sizeof buffer, 0);
    if (got == 0) return Status::error(Code::kUnavailable, "the daemon closed the connection without an answer");
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return gone("it answered");
    }
    const std::string_view piece(buffer, static_cast<std::size_t>(got));
    const std::size_t end = piece.find('\n');
    text += piece.substr(0, end);
    if (end != piece.npos) return text;
    if (text.size() > kMaxMessageBytes) return Status::error(Code::kInternal, "the daemon's answer has no end");
  }
}

}  // namespace

Result<Json> request(const std::string& runtime_dir, Json message, std::uint64_t timeout_ns) {
  const std::uint64_t deadline = now_ns() + timeout_ns;
  Result<std::string> line = to_line(std::move(message));
  if (!line.ok()) return line.status();
  const SocketPath path(runtime_dir);
  const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return Status::error(Code::kInternal, "socket: %s", std::strerror(errno));
  if (Status status = connect_until(socket, path, deadline); !status.ok()) return status;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  Sharing sharing;
  if (!sharing_of(runtime_dir.c_str(), &sharing).ok()) sharing = {geteuid()};
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
      (peer.uid != sharing.owner && (peer.uid != 0 || !sharing.by_group))) {
    return Status::error(Code::kPermissionDenied, "%.160s belongs to another user's process", path.text().c_str());
  }
  if (Status status = send_all(socket, *line, deadline); !status.ok()) return status;
  Result<std::string> answer = receive_line(socket, deadline);
  if (!answer.ok()) return answer.status();
  return parse_reply(*answer);
}

}  // namespace sluice::control
