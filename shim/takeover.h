// Taking the GPU over from jobs below, before the work that needs it is there.
//
// The GPU switches to this process's context when its front end first sees compute work of it. A request usually begins
// with a copy, and a graph takes its launch tens of microseconds of CPU time, so the switch would start late. A 4-byte
// memset on a stream of its own starts it as soon as the gates below are closed. Measured on an H200 beside training: a
// request takes 25 us less (docs/results.md).
//
// Fail open: where the stream or the word cannot be made, nothing is enqueued.
#pragma once

#include <cuda.h>

#include "sluice/cuda_abi.h"

namespace sluice::shim {

struct StreamState;

// Enqueues the memset, unless this job is held itself or work of that kind starts the switch. REQUIRES: the calling
// thread has just closed gates below, and is about to submit that work to `stream`, which is not capturing.
void take_over(const StreamState& stream, cuda_abi::Kind kind);
// A context is about to go, and what was made in it with it; null: every context.
void forget_takeover(CUcontext context);

}  // namespace sluice::shim
