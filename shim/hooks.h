// The wrappers, keyed by the exported symbol they stand for.
#pragma once

#include <atomic>
#include <span>

namespace sluice::shim {

struct Hook {
  const char* symbol;
  void* wrapper;
  std::atomic<void*>* real;  // the driver's own function; filled when the shim is loaded
};

std::span<const Hook> submit_hooks();  // hooks_submit.cc: every entry of the class Submits
std::span<const Hook> sync_hooks();    // hooks_sync.cc: waiting, events, capture, lifetime
std::span<const Hook>
memory_hooks();  // hooks_memory.cc: what takes and gives back memory, and what tells how much there is
std::span<const Hook> graph_hooks();   // hooks_graph.cc: what makes graphs executable
std::span<const Hook> lookup_hooks();  // resolve.cc: cuGetProcAddress

// The hook of that exported symbol, or null.
const Hook* find_hook(const char* symbol);

}  // namespace sluice::shim
