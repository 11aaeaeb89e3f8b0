// The kernels that read, write and copy device memory as fast as it goes, as PTX text for Turing and newer.
//
// Each works on tiles of `threads` x `unroll` x 16 bytes, one after the other with the grid's size as the stride, so
// that the caller's choice of grid says how much is in flight. Which shape is fastest differs from card to card: try
// them. Bytes behind the last whole tile are left alone.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli::doctor {

inline constexpr char kReadKernel[] = "sluice_read";    // (u64 from, u64 bytes, u32 never, u64 out)
inline constexpr char kWriteKernel[] = "sluice_write";  // (u64 to, u64 bytes)
inline constexpr char kCopyKernel[] = "sluice_copy";    // (u64 to, u64 from, u64 bytes)

struct KernelShape {
  unsigned threads = 256;  // of a block; both are powers of two
  unsigned unroll = 8;     // 16-byte accesses of a thread to a tile, all issued before the first is used
  std::uint64_t tile_bytes() const { return std::uint64_t{16} * threads * unroll; }
};

// A module with the three kernels. `out` is written only where a sum happens to be `never`, so that no read is left
// out.
std::string bandwidth_ptx(const KernelShape& shape);

}  // namespace sluice::cli::doctor
