// Waiting without burning a core. The driver's waits spin by default, also while the job is held: with many held jobs
// they would take the CPU from the job that holds them. These wait before the driver's call does, by asking: often
// while the gate is open, as the driver would, and with sleeps between while it is closed. The driver's own call comes
// afterwards in any case; it has the last word on errors.
//
// They return at once where nobody can hold this job, where it is not gated, and where its waits sleep anyway
// (CU_CTX_SCHED_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC). Thread safe, as session.h says.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace sluice::shim {

struct StreamState;

// Until everything submitted to `stream` is done. REQUIRES: the application keeps the stream meanwhile.
void await_stream(StreamState* stream);
// The same for a stream that another thread may destroy meanwhile, up to that submission of it.
void await_submission(StreamState* stream, std::uint64_t submission);
// Until `event`, which was recorded on `stream`, is done.
void await_event(CUevent event, StreamState* stream);

}  // namespace sluice::shim
