// Loading: opens the driver, fills the slots behind the exported names, and answers cuGetProcAddress.
#include <cuda.h>
#include <pthread.h>

#include <cstring>

#include "hooks.h"
#include "preempt.h"
#include "real.h"
#include "say.h"
#include "session.h"
#include "sluice/cuda_abi.h"
#include "sluice/driver.h"

extern "C" void* sluice_slots[];  // trampolines.S: one for each of cuda_abi::exports(), in that order

namespace sluice::shim {
namespace {

// What an exported name does that the installed driver does not have, or when there is no driver at all.
CUresult missing_function() { return CUDA_ERROR_NOT_FOUND; }
CUresult no_driver() { return CUDA_ERROR_NO_DEVICE; }

// The last ABI of `name` that the table knows, as the driver answers for it; null if it has none.
template <class Ask>
void* newest_known(const char* name, cuuint64_t flags, Ask ask) {
  void* function = nullptr;
  return ask(name, &function, cuda_abi::kCudaVersion, flags) == CUDA_SUCCESS ? function : nullptr;
}

// Replaces a granted pointer by the wrapper of that very ABI, if there is one.
template <class Ask>
void substitute(const char* name, void** function, int version, cuuint64_t flags, Ask ask) {
  const cuda_abi::Entry* entry = cuda_abi::find(name, version, flags);
  if (entry == nullptr || version > cuda_abi::kCudaVersion) {
    if (entry == nullptr || newest_known(name, flags, ask) != *function) {
      // An ABI newer than the table: its arguments are unknown, so it passes through, and is counted.
      if (Session* session = session_at(0))
        session->self->counters.unknown_lookups.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  const Hook* hook = find_hook(entry->symbol);
  if (hook == nullptr) return;
  void* expected = nullptr;  // a function that is granted but not exported
  hook->real->compare_exchange_strong(expected, *function);
  *function = hook->wrapper;
}

std::atomic<void*> real_cuGetProcAddress, real_cuGetProcAddress_v2;

CUresult CUDAAPI hook_cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  using Function = CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t);
  const Function next = reinterpret_cast<Function>(real_cuGetProcAddress.load());
  const CUresult result = next(name, function, version, flags);
  if (result == CUDA_SUCCESS && name != nullptr && function != nullptr && *function != nullptr)
    substitute(name, function, version, flags, next);
  return result;
}

CUresult CUDAAPI hook_cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                                          CUdriverProcAddressQueryResult* found) {
  using Function = CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const Function next = reinterpret_cast<Function>(real_cuGetProcAddress_v2.load());
  const CUresult result = next(name, function, version, flags, found);
  if (result == CUDA_SUCCESS && name != nullptr && function != nullptr && *function != nullptr) {
    substitute(name, function, version, flags,
               [next](const char* n, void** f, int v, cuuint64_t fl) { return next(n, f, v, fl, nullptr); });
  }
  return result;
}

const Hook kHooks[] = {
    {"cuGetProcAddress", reinterpret_cast<void*>(&hook_cuGetProcAddress), &real_cuGetProcAddress},
    {"cuGetProcAddress_v2", reinterpret_cast<void*>(&hook_cuGetProcAddress_v2), &real_cuGetProcAddress_v2},
};

[[gnu::constructor]] void load() {
  const std::span<const char* const> names = cuda_abi::exports();
  Result<void*> handle = driver::open_library();
  if (!handle.ok()) {
    static std::atomic<bool> said{false};
    say_once(&said, "%s", handle.status().message());
    for (std::size_t i = 0; i < names.size(); ++i) sluice_slots[i] = reinterpret_cast<void*>(&no_driver);
    return;
  }
  load_real(*handle);
  const bool managed = configure();
  if (managed) prepare_preemption(*handle);
  for (std::size_t i = 0; i < names.size(); ++i) {
    void* function = driver::symbol_address(*handle, names[i]);
    // An unmanaged process gets the driver's own functions: the shim is then only one jump.
    const Hook* hook = managed && function != nullptr ? find_hook(names[i]) : nullptr;
    if (hook != nullptr) hook->real->store(function);
    sluice_slots[i] = hook != nullptr       ? hook->wrapper
                      : function != nullptr ? function
                                            : reinterpret_cast<void*>(&missing_function);
  }
  if (managed) pthread_atfork(nullptr, nullptr, stop_after_fork);
}

[[gnu::destructor]] void unload() { shut_down(); }

}  // namespace

std::span<const Hook> lookup_hooks() { return kHooks; }

const Hook* find_hook(const char* symbol) {
  for (const std::span<const Hook> hooks :
       {lookup_hooks(), submit_hooks(), sync_hooks(), memory_hooks(), graph_hooks()}) {
    for (const Hook& hook : hooks) {
      if (std::strcmp(hook.symbol, symbol) == 0) return &hook;
    }
  }
  return nullptr;
}

}  // namespace sluice::shim

// Tells Sluice's own libraries from the driver's; the number is the shim's version.
extern "C" [[gnu::visibility("default")]] int sluice_shim_version() { return 1; }
