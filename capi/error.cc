#include "error.h"

#include <cstdio>

namespace sluice::capi {
namespace {

thread_local char last_message[Status::kMessageBytes];

int code_of(Code code) {
  switch (code) {
    case Code::kOk:
      return SLUICE_OK;
    case Code::kInvalidArgument:
      return SLUICE_INVALID_ARGUMENT;
    case Code::kNotFound:
      return SLUICE_NOT_FOUND;
    case Code::kPermissionDenied:
      return SLUICE_PERMISSION_DENIED;
    case Code::kResourceExhausted:
      return SLUICE_RESOURCE_EXHAUSTED;
    case Code::kFailedPrecondition:
      return SLUICE_FAILED_PRECONDITION;
    case Code::kUnimplemented:
      return SLUICE_UNIMPLEMENTED;
    case Code::kUnavailable:
      return SLUICE_UNAVAILABLE;
    case Code::kDeadlineExceeded:
    case Code::kAlreadyExists:
    case Code::kAborted:
    case Code::kInternal:
      break;
  }
  return SLUICE_INTERNAL;
}

}  // namespace

int fail(const Status& status) {
  std::snprintf(last_message, sizeof last_message, "%s", status.message());
  return code_of(status.code());
}

Status null_argument(const char* function, const char* argument) {
  return Status::error(Code::kInvalidArgument, "%s: '%s' is NULL", function, argument);
}

}  // namespace sluice::capi

const char* sluice_last_error(void) { return sluice::capi::last_message; }

const char* sluice_version(void) { return SLUICE_VERSION; }
