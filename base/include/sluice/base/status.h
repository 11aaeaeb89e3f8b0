// Errors inside Sluice: a code, equal to gRPC's, and one sentence that says what was wrong, where, and what to do.
//
// Nothing here allocates, throws or needs a C++ runtime library, because the shim, which is loaded into other
// people's programs, uses it too. Thread safety: values, as thread safe as an int.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <utility>

namespace sluice {

// The numeric values are gRPC's (https://grpc.io/docs/guides/status-codes/).
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 3,   // bad usage or input: exit code 2
  kDeadlineExceeded = 4,  // took longer than allowed; retrying can help
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,  // no free slot, no memory, no space on /dev/shm
  kFailedPrecondition = 9,
  kAborted = 10,  // lost a race; retry
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,  // no device, no driver, no daemon: exit code 3 where it is a device
};

// The code's gRPC name, such as "NOT_FOUND". Never null.
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  // Longer messages are cut at this many bytes, the terminating zero included.
  static constexpr std::size_t kMessageBytes = 256;

  Status() = default;  // ok

  // `format` as printf takes it.
  [[gnu::format(printf, 2, 3)]] static Status error(Code code, const char* format, ...);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const char* message() const { return message_; }  // "" when ok

 private:
  Code code_ = Code::kOk;
  char message_[kMessageBytes] = {};
};

// A value or the error that took its place. `T` must be default constructible.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor): REQUIRES: !status.ok()

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& value() { return value_; }
  const T& value() const { return value_; }
  T& operator*() { return value_; }
  const T& operator*() const { return value_; }
  T* operator->() { return &value_; }
  const T* operator->() const { return &value_; }

 private:
  Status status_;
  T value_{};
};

// Exit codes every program of Sluice uses; `sluice run` returns the job's own code instead.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoDevice = 3;

// The one converter from a status to an exit code.
int exit_code(const Status& status);

}  // namespace sluice
