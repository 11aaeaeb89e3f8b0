// The channel groups of this process: what the GPU switches between when several processes have work for it.
//
// A gate stops a job between two kernels; a kernel that runs on is only stopped by the GPU's own scheduler, which gives
// a context 2 ms before it looks at another, and gives it the GPU back in every gap of the other's. Both are this
// process's to change: the length of its time slice, and whether its channels may run. That takes unprivileged calls to
// the kernel module (rm_abi.h), and those of NVIDIA's library are followed here to know the groups. Where that cannot
// be, count() stays 0 and nothing else changes (ADR 20).
//
// Thread safe. A call takes 0.2 to 0.6 ms and may wait for the kernel module: not for threads that open gates.
#pragma once

#include <cstdint>

namespace sluice::shim::channel_groups {

// Starts to follow the calls of `driver`, a handle of dlopen. Before cuInit, once. False: it makes none of that kind.
bool follow(void* driver);

// Groups that run kernels, now. `one_device`: they are all of the same GPU.
int count(bool* one_device = nullptr);

// Gives each of them a time slice of `us`, also those that come later; 0: what the driver gave it.
void set_time_slice(std::uint64_t us);

// Takes them off the GPU, a running kernel included, until put_on(). Returns how many changed.
int take_off();
int put_on();

// When the process ends: puts them on; take_off() and set_time_slice() do nothing from now on. Waits a second at most
// for another thread's call, or for what a signal handler that ends the process has interrupted.
void close();
// In the child of a fork, where another thread may have had the lock: passes everything through from now on.
void stop_following();

}  // namespace sluice::shim::channel_groups
