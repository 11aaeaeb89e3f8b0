#include "web.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <set>

#include "metrics.h"
#include "page.h"
#include "sluice/daemon.h"

namespace sluice::daemon {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using Error = boost::system::error_code;
using control::Json;

constexpr std::size_t kMostConnections = 32;
constexpr std::uint32_t kMostHeaderBytes = 16 * 1024;
constexpr std::chrono::seconds kSilence(30);

struct Place {
  asio::ip::address address;
  unsigned short port = 0;
};

Result<Place> parse(const std::string& text) {
  const Status wrong = Status::error(Code::kInvalidArgument, "'%.60s' is no address and port, such as %s", text.c_str(),
                                     kDefaultMetrics);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  Error error;
  Place place;
  place.address = asio::ip::make_address(host, error);
  if (error || port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos)
    return wrong;
  const int number = std::stoi(port);
  if (number > 65535) return wrong;
  place.port = static_cast<unsigned short>(number);
  return place;
}

// The address, if it may be listened on.
Result<Place> allowed(const std::string& text, bool allow_remote) {
  Result<Place> place = parse(text);
  if (!place.ok()) return Status::error(Code::kInvalidArgument, "--metrics: %s", place.status().message());
  if (place->address.is_loopback() || allow_remote) return place;
  return Status::error(Code::kInvalidArgument,
                       "--metrics %.60s: others than this machine may reach it; if that is meant, add "
                       "--metrics-allow-remote",
                       text.c_str());
}

class Connection;

}  // namespace

Status check_metrics(const Options& options) {
  return options.metrics.empty() ? Status() : allowed(options.metrics, options.metrics_allow_remote).status();
}

class Web::Impl : public std::enable_shared_from_this<Web::Impl> {
 public:
  Impl(asio::io_context& io, bool allow_remote, Ask ask)
      : io_(io), acceptor_(io), retry_(io), allow_remote_(allow_remote), ask_(std::move(ask)) {}

  Status open(const Place& place, const std::string& text);
  void accept();
  void close();
  void forget(const std::shared_ptr<Connection>& connection) { connections_.erase(connection); }
  std::string url() const;

  // A page of somebody else's, whose name was made to mean this machine, must not read what is served here.
  bool is_own_name(beast::string_view host) const;

  void ask(std::function<void(Json)> use) const { ask_(std::move(use)); }
  asio::io_context& io() { return io_; }

 private:
  asio::io_context& io_;
  Tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  const bool allow_remote_;
  const Ask ask_;
  std::set<std::shared_ptr<Connection>> connections_;
};

namespace {

// Reads a request, answers it, and so on.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::weak_ptr<Web::Impl> web, Tcp::socket socket) : web_(std::move(web)), stream_(std::move(socket)) {}

  void read() {
    parser_.emplace();
    parser_->header_limit(kMostHeaderBytes);
    parser_->body_limit(0);
    stream_.expires_after(kSilence);
    http::async_read(stream_, input_, *parser_, [self = shared_from_this()](Error error, std::size_t) {
      if (error) return self->end();
      self->answer();
    });
  }

  void close() {
    Error ignored;
    stream_.socket().close(ignored);
  }

 private:
  void answer() {
    const std::shared_ptr<Web::Impl> web = web_.lock();
    if (web == nullptr) return end();
    const auto& request = parser_->get();
    const beast::string_view target = request.target().substr(0, request.target().find('?'));
    if (!web->is_own_name(request[http::field::host]))
      return write(http::status::forbidden, "text/plain", "forbidden\n");
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return write(http::status::method_not_allowed, "text/plain", "only GET and HEAD\n");
    if (target == "/") return write(http::status::ok, "text/html; charset=utf-8", kPage);
    const bool metrics = target == "/metrics";
    if (!metrics && target != "/status.json") return write(http::status::not_found, "text/plain", "not found\n");
    web->ask([self = shared_from_this(), &io = web->io(), metrics](const Json& status) {
      std::string text = metrics ? metrics_text(status) : status.dump(-1, ' ', false, Json::error_handler_t::replace);
      const char* type = metrics ? "text/plain; version=0.0.4; charset=utf-8" : "application/json";
      asio::post(
          io, [self, type, text = std::move(text)]() mutable { self->write(http::status::ok, type, std::move(text)); });
    });
  }

  void write(http::status status, const char* type, std::string body) {
    const auto& request = parser_->get();
    response_.emplace(status, request.version());
    response_->set(http::field::content_type, type);
    response_->set(http::field::cache_control, "no-store");
    response_->set("X-Content-Type-Options", "nosniff");
    response_->set("Content-Security-Policy",
                   "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; script-src "
                   "'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'");
    response_->keep_alive(request.keep_alive());
    response_->content_length(body.size());
    if (request.method() != http::verb::head) response_->body() = std::move(body);
    stream_.expires_after(kSilence);
    http::async_write(stream_, *response_, [self = shared_from_this()](Error error, std::size_t) {
      if (error || !self->response_->keep_alive()) return self->end();
      self->read();
    });
  }

  void end() {
    close();
    if (const auto web = web_.lock()) web->forget(shared_from_this());
  }

  std::weak_ptr<Web::Impl> web_;
  beast::tcp_stream stream_;
  beast::flat_buffer input_{kMostHeaderBytes * 2};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
};

}  // namespace

Status Web::Impl::open(const Place& place, const std::string& text) {
  const Tcp::endpoint endpoint(place.address, place.port);
  Error error;
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  const Code code = error == asio::error::address_in_use  ? Code::kAlreadyExists
                    : error == asio::error::access_denied ? Code::kPermissionDenied
                                                          : Code::kInternal;
  return Status::error(code, "--metrics %.60s: %.120s", text.c_str(), error.message().c_str());
}

void Web::Impl::accept() {
  acceptor_.async_accept([self = shared_from_this()](Error error, Tcp::socket socket) {
    if (error == asio::error::operation_aborted || !self->acceptor_.is_open()) return;
    if (error) {  // out of descriptors, perhaps
      self->retry_.expires_after(std::chrono::milliseconds(100));
      self->retry_.async_wait([self](Error stopped) {
        if (!stopped) self->accept();
      });
      return;
    }
    if (self->connections_.size() < kMostConnections) {
      const auto connection = std::make_shared<Connection>(self, std::move(socket));
      self->connections_.insert(connection);
      connection->read();
    }
    self->accept();
  });
}

void Web::Impl::close() {
  Error ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  for (const auto& connection : connections_) connection->close();
  connections_.clear();
}

std::string Web::Impl::url() const {
  Error ignored;
  const Tcp::endpoint at = acceptor_.local_endpoint(ignored);
  const std::string host = at.address().to_string();
  return "http://" + (at.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(at.port()) + "/";
}

bool Web::Impl::is_own_name(beast::string_view host) const {
  if (allow_remote_) return true;
  std::string name(host);
  const std::size_t colon = name.rfind(':');
  if (colon != std::string::npos && name.find(']', colon) == std::string::npos) name.resize(colon);
  if (name == "localhost") return true;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  Error error;
  const asio::ip::address address = asio::ip::make_address(name, error);
  return !error && address.is_loopback();
}

Web::Web(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Web::~Web() { impl_->close(); }
std::string Web::url() const { return impl_->url(); }

Result<std::unique_ptr<Web>> Web::listen(asio::io_context& io, const std::string& address, bool allow_remote, Ask ask) {
  const Result<Place> place = allowed(address, allow_remote);
  if (!place.ok()) return place.status();
  const auto impl = std::make_shared<Impl>(io, allow_remote, std::move(ask));
  if (Status status = impl->open(*place, address); !status.ok()) return status;
  impl->accept();
  return std::make_unique<Web>(impl);
}

}  // namespace sluice::daemon
