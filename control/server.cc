#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "sluice/base/sharing.h"
#include "sluice/control.h"
#include "socket_path.h"

namespace sluice::control {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;
using Error = boost::system::error_code;

namespace {
class Connection;
}

class Server::Impl : public std::enable_shared_from_this<Server::Impl> {
 public:
  Impl(asio::io_context& io, Handler handler, Limits limits, std::string socket_path)
      : io_(io),
        acceptor_(io),
        retry_(io),
        handler_(std::move(handler)),
        limits_(limits),
        socket_path_(std::move(socket_path)) {}

  Status open(const std::string& runtime_dir);
  void accept();
  void close();

  void forget(const std::shared_ptr<Connection>& connection) { connections_.erase(connection); }
  const Handler& handler() const { return handler_; }
  const Limits& limits() const { return limits_; }
  asio::io_context& io() { return io_; }
  std::atomic<std::size_t> pending{0};

 private:
  void admit(Local::socket socket);
  bool may_ask(int socket, uid_t* user) const;

  asio::io_context& io_;
  Local::acceptor acceptor_;
  asio::steady_timer retry_;
  const Handler handler_;
  const Limits limits_;
  const std::string socket_path_;
  Sharing sharing_;
  struct stat socket_ {};  // as it was made: close() removes no other
  std::set<std::shared_ptr<Connection>> connections_;
};

namespace {

// Reads a line, has it answered, writes the answer, and so on. One request at a time; on the io_context's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::weak_ptr<Server::Impl> server, asio::io_context& io, Local::socket socket, uid_t user,
             std::uint64_t silence_ns)
      : server_(std::move(server)), socket_(std::move(socket)), user_(user), silence_(io), silence_ns_(silence_ns) {}

  void read() {
    watch();
    asio::async_read_until(socket_, asio::dynamic_buffer(input_, kMaxMessageBytes), '\n',
                           [self = shared_from_this()](Error error, std::size_t bytes) { self->got(error, bytes); });
  }

  void close() {
    Error ignored;
    socket_.close(ignored);
    silence_.cancel();
    if (auto server = server_.lock()) server->forget(shared_from_this());
  }

 private:
  // A peer that neither speaks nor reads for so long is let go, so that it cannot use up the connections.
  void watch() {
    silence_.expires_after(std::chrono::nanoseconds(silence_ns_));
    silence_.async_wait([self = shared_from_this()](Error error) {
      if (!error) self->close();
    });
  }

  void got(Error error, std::size_t bytes) {
    silence_.cancel();
    if (error == asio::error::not_found) {  // the buffer is full and holds no newline
      closing_ = true;
      return write(
          error_reply(Status::error(Code::kInvalidArgument, "request of more than %zu bytes", kMaxMessageBytes)));
    }
    const auto server = server_.lock();
    if (error || !server) return close();
    const Result<Json> request = parse_request(std::string_view(input_).substr(0, bytes - 1));
    input_.erase(0, bytes);
    if (!request.ok()) return write(error_reply(request.status()));
    ++server->pending;
    server->handler()(*request, user_,
                      [self = shared_from_this(), server_of = server_, &io = server->io()](Json reply) {
                        // The weak pointer guards the io_context too: it outlives the server.
                        if (const auto alive = server_of.lock()) {
                          --alive->pending;
                          asio::post(io, [self, reply = std::move(reply)]() mutable { self->write(std::move(reply)); });
                        }
                      });
  }

  void write(Json reply) {
    Result<std::string> line = to_line(std::move(reply));
    if (!line.ok()) line = to_line(error_reply(line.status()));
    output_ = std::move(*line);
    watch();
    asio::async_write(socket_, asio::buffer(output_), [self = shared_from_this()](Error error, std::size_t) {
      if (error || self->closing_) return self->close();
      self->read();
    });
  }

  const std::weak_ptr<Server::Impl> server_;
  Local::socket socket_;
  const uid_t user_;
  asio::steady_timer silence_;
  const std::uint64_t silence_ns_;
  std::string input_, output_;
  bool closing_ = false;
};

}  // namespace

Status Server::Impl::open(const std::string& runtime_dir) {
  const SocketPath path(runtime_dir);
  unlink(path.text().c_str());
  if (!sharing_of(runtime_dir.c_str(), &sharing_).ok()) sharing_ = {geteuid()};
  Error error;
  acceptor_.open(Local(), error);
  // Not chmod afterwards: a member may have put a link in its place by then. The group is the directory's.
  const mode_t before = umask(0777 & ~sharing_.file_mode());
  if (!error) acceptor_.bind(Local::endpoint(path.text()), error);
  umask(before);
  if (!error && lstat(path.text().c_str(), &socket_) != 0) error.assign(errno, boost::system::system_category());
  if (!error) acceptor_.listen(Local::acceptor::max_listen_connections, error);
  if (error) {
    const Code code = error == boost::system::errc::no_such_file_or_directory ? Code::kNotFound
                      : error == boost::system::errc::permission_denied       ? Code::kPermissionDenied
                                                                              : Code::kInternal;
    return Status::error(code, "cannot listen on %.160s: %s", socket_path_.c_str(), error.message().c_str());
  }
  return {};
}

void Server::Impl::accept() {
  acceptor_.async_accept([weak = weak_from_this()](Error error, Local::socket socket) {
    const auto self = weak.lock();
    if (!self || error == asio::error::operation_aborted) return;
    if (!error) {
      self->admit(std::move(socket));
      return self->accept();
    }
    // Out of descriptors, most likely: trying again at once would only burn the processor.
    self->retry_.expires_after(std::chrono::milliseconds(50));
    self->retry_.async_wait([weak](Error cancelled) {
      if (const auto again = weak.lock(); again && !cancelled) again->accept();
    });
  });
}

// By the credentials that the kernel noted when the connection was made.
bool Server::Impl::may_ask(int socket, uid_t* user) const {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  *user = peer.uid;
  if (peer.uid == geteuid()) return true;
  if (!sharing_.by_group) return false;
  if (peer.uid == 0 || peer.gid == sharing_.group) return true;
  std::vector<gid_t> groups(NGROUPS_MAX);
  bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return false;
  groups.resize(bytes / sizeof(gid_t));
  return std::find(groups.begin(), groups.end(), sharing_.group) != groups.end();
}

void Server::Impl::admit(Local::socket socket) {
  uid_t user = 0;
  if (!may_ask(socket.native_handle(), &user) || connections_.size() >= limits_.connections) return;
  auto connection = std::make_shared<Connection>(weak_from_this(), io_, std::move(socket), user, limits_.silence_ns);
  connections_.insert(connection);
  connection->read();
}

void Server::Impl::close() {
  Error ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  struct stat named;
  if (lstat(socket_path_.c_str(), &named) == 0 && named.st_dev == socket_.st_dev && named.st_ino == socket_.st_ino)
    unlink(socket_path_.c_str());
  for (const auto& connection : std::exchange(connections_, {})) connection->close();
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->close(); }

Result<std::unique_ptr<Server>> Server::listen(asio::io_context& io, const std::string& runtime_dir, Handler handler,
                                               Limits limits) {
  auto impl = std::make_shared<Impl>(io, std::move(handler), limits, runtime_dir + "/" + kSocketName);
  if (Status status = impl->open(runtime_dir); !status.ok()) return status;
  impl->accept();
  return std::make_unique<Server>(std::move(impl));
}

std::size_t Server::pending() const { return impl_->pending; }

}  // namespace sluice::control
