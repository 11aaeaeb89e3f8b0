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

// The wrapper hook_<symbol> of an entry point with these parameters, and real_<symbol>. `result` is what it returns, by
// means of `call()`, the driver's own function with the program's arguments; where the shim is off it is only that.
#define SLUICE_WRAPPER(symbol, result, params, args)                                                 \
  std::atomic<void*> real_##symbol;                                                                  \
  CUresult CUDAAPI hook_##symbol params {                                                            \
    using Function = CUresult(CUDAAPI*) params;                                                      \
    const Function next = reinterpret_cast<Function>(real_##symbol.load(std::memory_order_relaxed)); \
    if (!enabled()) return next args;                                                                \
    const auto call = [&] { return next args; };                                                     \
    return result;                                                                                   \
  }

std::span<const Hook> submit_hooks();  // hooks_submit.cc: every entry of the class Submits
std::span<const Hook> sync_hooks();    // hooks_sync.cc: waiting, events, capture, lifetime
std::span<const Hook> memory_hooks();  // hooks_memory.cc: what takes, gives back and tells of memory
std::span<const Hook> graph_hooks();   // hooks_graph.cc: what makes graphs executable
std::span<const Hook> lookup_hooks();  // resolve.cc: cuGetProcAddress

// The hook of that exported symbol, or null.
const Hook* find_hook(const char* symbol);

}  // namespace sluice::shim
