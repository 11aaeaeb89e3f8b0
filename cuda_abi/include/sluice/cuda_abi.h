// The driver API as one table: every ABI of every entry point that the toolkit of kCudaVersion knows, with the class of
// what it does. Shim, emulator and tools read it, so that nobody keeps a second list.
//
// The tables are generated (cuda_abi/generate.py) and committed: cuda_abi/entries.inc, submits.inc and exports.inc are
// X-macro files for those who need signatures; the functions below serve those who look up by name.
//
// Thread safety: constant data. Nothing here allocates, throws or needs a C++ runtime library.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

// The types of CUDA 2's ABI (32-bit device pointers), which cuda.h hides from all but the driver's own sources.
#ifndef __CUDA_API_VERSION_INTERNAL
#include "sluice/cuda_abi/legacy_types.inc"
#endif

namespace sluice::cuda_abi {

#define SLUICE_CUDA_ABI_VERSION(version) inline constexpr int kCudaVersion = version;
#include "sluice/cuda_abi/version.inc"  // 13000 for CUDA 13.0
#undef SLUICE_CUDA_ABI_VERSION

enum class Class : std::uint8_t {
  kSubmits,       // gives the GPU work
  kAllocates,     // takes or gives back memory of the device or of the host
  kSynchronises,  // blocks until GPU work is done, or asks whether it is
  kCaptures,      // stream capture
  kLifetime,      // makes or ends a context, stream, event, module, library or executable graph
  kOther,         // the rest, stream memory operations and external semaphores included: they order work, they are none
};

// What a submission gives the GPU.
enum class Kind : std::uint8_t { kKernel, kGraph, kCopy, kMemset, kHost, kOther };

struct Entry {
  const char* symbol;   // the exported name that has this ABI, such as cuMemcpyHtoD_v2_ptds
  const char* name;     // what is passed to cuGetProcAddress, such as cuMemcpyHtoD
  int version;          // the first CUDA version with this ABI, as CUDA_VERSION: 3020 for 3.2
  std::uint64_t flags;  // 0: the legacy default stream; 2: the calling thread's own (_ptsz, _ptds)
  Class cls;
};

// All entries, sorted by name, then flags, then version. Every symbol stands there once.
std::span<const Entry> entries();

// Every name a stand-in for libcuda.so.1 has to export, sorted; more than there are entries, since some entry points
// (OpenGL, EGL, VDPAU, the debugger's) are known by name only.
std::span<const char* const> exports();

// The entry that cuGetProcAddress(name, version, flags) means: the newest whose version is not above `version`, as
// driver 580 answers for every entry (tools/check_driver). Bit 2 of the flags asks for the per-thread variant: one that
// is newer than `version` gives nothing, an entry point that has none gives its plain entry. Bit 1 (legacy stream) is
// the default. Null if `name` is null or unknown, if no ABI of it is that old, or if another bit is set.
const Entry* find(const char* name, int version, std::uint64_t flags);

// The entry whose exported symbol is `symbol`, null if there is none.
const Entry* find_symbol(const char* symbol);

// Whether the kernel may start before what comes before it in its stream has ended (programmatic dependent launch).
inline bool overlaps(const CUlaunchConfig* config) {
  for (unsigned i = 0; config && config->attrs && i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0)
      return true;
  }
  return false;
}

// Sums over the arrays of batched calls, in bytes; 0 for a null array.
inline std::uint64_t sum(const std::size_t* sizes, std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; sizes && i < count; ++i) total += sizes[i];
  return total;
}
inline std::uint64_t sum(const CUDA_MEMCPY3D_BATCH_OP* ops, std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; ops && i < count; ++i) {
    total += std::uint64_t{ops[i].extent.width} * ops[i].extent.height * ops[i].extent.depth;
  }
  return total;
}
inline std::uint64_t sum(const CUmemDecompressParams* params, std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; params && i < count; ++i) total += params[i].dstNumBytes;
  return total;
}

}  // namespace sluice::cuda_abi

// What submits.inc calls the sums.
#define SLUICE_SUM(array, count) ::sluice::cuda_abi::sum(array, count)
