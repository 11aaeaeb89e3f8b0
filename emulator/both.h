// Entry points that exist twice: for the legacy default stream and for the per-thread one.
#pragma once

#include "state.h"
#include "work.h"

#define EMU_UNPACK(...) __VA_ARGS__

// EMU_BOTH(cuStreamQuery, query, (CUstream s), (s)): exports cuStreamQuery, which calls query(false, s), and
// cuStreamQuery_ptsz, which calls query(true, s). `variant` is ptsz, or ptds for calls without a stream of their own.
#define EMU_BOTH_AS(variant, name, function, params, args)                  \
  EMU_API CUresult name params { return function(false, EMU_UNPACK args); } \
  EMU_API CUresult name##_##variant params { return function(true, EMU_UNPACK args); }
#define EMU_BOTH(name, function, params, args) EMU_BOTH_AS(ptsz, name, function, params, args)
#define EMU_BOTH_DS(name, function, params, args) EMU_BOTH_AS(ptds, name, function, params, args)

// What an entry point that takes a stream begins with: `call` (the lock and the context) and `at` (the Stream*).
#define EMU_STREAM(stream)                                    \
  Call call;                                                  \
  if (call.error != CUDA_SUCCESS) return call.error;          \
  Stream* at = find_stream(call.context, stream, per_thread); \
  if (at == nullptr) return CUDA_ERROR_INVALID_HANDLE

// The same where it takes work for the stream, which may be capturing.
#define EMU_SUBMIT(stream) \
  EMU_STREAM(stream);      \
  if (const CUresult may = may_submit(at); may != CUDA_SUCCESS) return may
