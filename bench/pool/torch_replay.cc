// Replays a trace through PyTorch's own allocator and through the pool, without Python between the calls. No target of
// the build: pytorch.py compiles it against the headers of the PyTorch that is measured.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

struct Event {
  std::uint64_t bytes;  // 0: the block is freed
  std::uint32_t block;
  std::uint32_t stream;
};

constexpr std::int64_t kOutOfMemory = -1;
constexpr std::int64_t kFailed = -2;

// Nanoseconds for all events, or kOutOfMemory after giving the blocks back.
template <typename Allocate, typename Free>
std::int64_t replay(const Event* events, std::uint64_t count, std::uint64_t blocks, void* const* streams,
                    const Allocate& allocate, const Free& free) {
  std::vector<void*> live(blocks);
  std::vector<std::uint32_t> stream_of(blocks);
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const Event& event = events[i];
    void*& block = live[event.block];
    if (event.bytes == 0) {
      free(block, streams[event.stream]);
      block = nullptr;
      continue;
    }
    block = allocate(event.bytes, streams[event.stream]);
    stream_of[event.block] = event.stream;
    if (block == nullptr) {
      for (std::uint64_t left = 0; left < blocks; ++left) {
        if (live[left] != nullptr) free(live[left], streams[stream_of[left]]);
      }
      return kOutOfMemory;
    }
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

extern "C" {

std::int64_t replay_torch(const Event* events, std::uint64_t count, std::uint64_t blocks, void* const* streams) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  try {
    return replay(
        events, count, blocks, streams,
        [](std::uint64_t bytes, void* stream) -> void* {
          try {
            return allocator::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
          } catch (const c10::OutOfMemoryError&) {
            return nullptr;
          }
        },
        [](void* block, void*) { allocator::raw_delete(block); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kFailed;
  }
}

// `allocate` and `free` are sluice_pool_allocate and sluice_pool_free.
std::int64_t replay_pool(const Event* events, std::uint64_t count, std::uint64_t blocks, void* const* streams,
                         void* pool, int (*allocate)(void*, std::uint64_t, void*, std::uint64_t*),
                         int (*free)(void*, std::uint64_t, void*)) {
  return replay(
      events, count, blocks, streams,
      [&](std::uint64_t bytes, void* stream) -> void* {
        std::uint64_t address = 0;
        return allocate(pool, bytes, stream, &address) == 0 ? reinterpret_cast<void*>(address) : nullptr;
      },
      [&](void* block, void* stream) { free(pool, reinterpret_cast<std::uint64_t>(block), stream); });
}

}  // extern "C"
