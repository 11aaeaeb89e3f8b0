// How the arguments of calls become operations, whether these go to a stream or into a graph.
//
// REQUIRE State::mutex. Each fills in `op` and returns what the driver says of the arguments; nothing is submitted.
#pragma once

#include "state.h"

namespace sluice::emulator {

// api_module.cc. `function`: a CUfunction or CUkernel.
CUresult make_kernel(const void* function, const Shape& shape, void** params, void** extra, Op* op);
// api_copy.cc. Arrays are not supported.
CUresult make_copy(const CUDA_MEMCPY3D& copy, Op* op);
CUresult make_fill(CUdeviceptr to, std::size_t pitch, unsigned value, unsigned element, std::size_t width,
                   std::size_t height, Op* op);
// api_stream.cc. `nothing`: it is a barrier or a flush, which the emulator has no use for.
CUresult make_memory_op(bool wait, bool wide, CUdeviceptr address, cuuint64_t value, unsigned flags, Op* op);
CUresult make_memory_op(const CUstreamBatchMemOpParams& params, Op* op, bool* nothing);

// ---- what a call on a stream does with it (capture.cc) ----------------------------------------------------------

// Whether work may be given to the stream: it may be capturing, but not in a capture that is invalid, and the default
// stream must not come to depend on a capture.
CUresult may_submit(Stream* stream);
// Submits the operation, or makes it a node of the graph that the stream captures. `id` is that of submit(), 0 for a
// node. REQUIRES: may_submit() said yes.
CUresult put(Stream* stream, Op op, Call& call, std::uint64_t* id = nullptr);
// The call is not possible while `stream` captures: says so, and its capture is invalid from now on.
CUresult forbid(Stream* stream);
// The same for a call that would wait for the whole context.
CUresult forbid_waiting(Context* context);

}  // namespace sluice::emulator
