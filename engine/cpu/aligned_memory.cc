#include "cpu/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace sluice::engine::cpu {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = 2u << 20;
constexpr std::size_t kWorthHugePages = 2 * kHugePage;

}  // namespace

std::shared_ptr<void> allocate_aligned(std::size_t bytes) {
  const std::size_t alignment = bytes >= kWorthHugePages ? kHugePage : kCacheLine;
  void* memory =
      std::aligned_alloc(alignment, (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment);
  if (memory != nullptr && alignment == kHugePage) {
    madvise(memory, bytes, MADV_HUGEPAGE);  // what is read once a run, or in steps of a page, misses the TLB else
  }
  return {memory, std::free};
}

}  // namespace sluice::engine::cpu
