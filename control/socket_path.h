// The address of the control socket, also when its path is longer than a socket address holds.
#pragma once

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "sluice/control.h"

namespace sluice::control {

// Keeps the directory open while the address is in use.
class SocketPath {
 public:
  explicit SocketPath(const std::string& runtime_dir) : text_(runtime_dir + "/" + kSocketName) {
    if (text_.size() < sizeof(sockaddr_un::sun_path)) return;
    directory_ = open(runtime_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    text_ = "/proc/self/fd/" + std::to_string(directory_) + "/" + kSocketName;
  }
  SocketPath(const SocketPath&) = delete;
  SocketPath& operator=(const SocketPath&) = delete;
  ~SocketPath() {
    if (directory_ >= 0) close(directory_);
  }

  const std::string& text() const { return text_; }
  sockaddr_un address() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, text_.c_str(), text_.size() + 1);
    return address;
  }

 private:
  std::string text_;
  int directory_ = -1;
};

}  // namespace sluice::control
