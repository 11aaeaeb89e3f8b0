// How errors leave the C interface: a code is returned, the message waits in sluice_last_error(). Thread safe.
#pragma once

#include <exception>
#include <new>

#include "sluice.h"
#include "sluice/base/status.h"

namespace sluice::capi {

// Remembers the message for the calling thread and returns the code. REQUIRES: !status.ok().
int fail(const Status& status);

// Runs `body`, which returns a Status, and turns what comes out of it into a code; nothing is thrown across the
// interface.
template <class Body>
int guarded(const Body& body) {
  try {
    const Status status = body();
    return status.ok() ? SLUICE_OK : fail(status);
  } catch (const std::bad_alloc&) {
    return fail(Status::error(Code::kResourceExhausted, "out of memory"));
  } catch (const std::exception& error) {
    return fail(Status::error(Code::kInternal, "unexpected: %s", error.what()));
  }
}

// kInvalidArgument that names the function and the argument.
Status null_argument(const char* function, const char* argument);

}  // namespace sluice::capi
