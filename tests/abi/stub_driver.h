// A libcuda that does nothing but remember: every entry point copies its arguments, bit for bit, into a log of the
// calling thread and returns what the test asked for. What the shim calls for itself behaves just well enough for it
// to manage a job, and is logged too. Generated from the table of entry points.
//
// cuGetProcAddress answers as driver 580 does (measured), at version kStubVersion, newer than the table's. It knows two
// things that the table does not: kStubFunction, and a newer ABI of cuMemAlloc, with three arguments, from kStubVersion
// on.
//
// With SLUICE_STUB_LOG=FILE every look-up is appended there: "cuGetProcAddress[_v2] <tab> name <tab> version <tab>
// flags".
//
// The functions below are found by dlsym in the library. Thread safe: all but the look-up log is per thread.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace sluice::stub {

inline constexpr int kStubVersion = 13020;
inline constexpr char kStubFunction[] = "cuStubOnlyFunction";
// The only device's UUID, as the driver spells it.
inline constexpr char kStubUuid[] = "GPU-736c7569-6365-2d73-7475-622d67707521";

struct Argument {
  std::size_t size;
  unsigned char bytes[64];
};

struct Call {
  const char* symbol;
  std::size_t count;
  Argument arguments[16];
};

inline constexpr std::size_t kCallsKept = 64;

// This thread's calls since clear(), oldest first; only the first kCallsKept are kept. Valid until this thread's next
// call.
using CallsFunction = std::size_t (*)(const Call** calls);  // "sluice_stub_calls"
using ClearFunction = void (*)();                           // "sluice_stub_clear"
// Until clear(), this thread's calls of `symbol` return `result` and do nothing else.
using AnswerFunction = void (*)(const char* symbol, CUresult result);  // "sluice_stub_answer"
// The address behind `symbol`, including the two that no symbol table has: kStubFunction and "cuMemAlloc_newer".
using AddressFunction = void* (*)(const char* symbol);  // "sluice_stub_address"

}  // namespace sluice::stub
