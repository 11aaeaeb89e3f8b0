// The daemon's web server: metrics for Prometheus, the status as JSON, and a page that draws it. It reads nothing from
// those who ask but the path, and changes nothing. Belongs to the io_context's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sluice/control.h"

namespace sluice::daemon {

class Web {
 public:
  // Gives the status to `use`, soon, on any thread.
  using Ask = std::function<void(std::function<void(control::Json)> use)>;

  // Listens on `address` ("127.0.0.1:9847", "[::1]:0"; port 0: any that is free). One that others than this machine
  // reach is refused unless `allow_remote`. Errors: kInvalidArgument; kPermissionDenied, kAlreadyExists (the port is
  // taken), kInternal.
  static Result<std::unique_ptr<Web>> listen(boost::asio::io_context& io, const std::string& address, bool allow_remote,
                                             Ask ask);
  ~Web();  // closes every connection

  std::string url() const;  // "http://127.0.0.1:9847/"

  class Impl;
  explicit Web(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::daemon
