// One card that is measured: a context, buffers, and the roads that bytes take. One thread for all cards together.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "figures.h"
#include "kernels.h"
#include "sluice/base/status.h"

namespace sluice::cli::doctor {

// The driver's entry points that are called here, by their names in cuda.h.
struct BandwidthDriver {
  decltype(&::cuInit) init;
  decltype(&::cuGetErrorName) error_name;
  decltype(&::cuDeviceGetCount) device_count;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetName) device_name;
  decltype(&::cuDeviceGetUuid) device_uuid;
  decltype(&::cuDeviceGetAttribute) device_attribute;
  decltype(&::cuDeviceCanAccessPeer) can_access_peer;
  decltype(&::cuDevicePrimaryCtxRetain) retain;
  decltype(&::cuDevicePrimaryCtxRelease) release;
  decltype(&::cuCtxSetCurrent) set_current;
  decltype(&::cuCtxEnablePeerAccess) enable_peer;
  decltype(&::cuMemGetInfo) memory_info;
  decltype(&::cuMemAlloc) allocate;
  decltype(&::cuMemAllocHost) allocate_host;
  decltype(&::cuMemFreeHost) free_host;
  decltype(&::cuModuleLoadData) load_module;
  decltype(&::cuModuleGetFunction) function;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamSynchronize) stream_synchronize;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventRecord) event_record;
  // Not by its name in cuda.h: drivers before CUDA 12.8 lack the newer version of it.
  CUresult (*event_elapsed)(float*, CUevent, CUevent);
  decltype(&::cuMemcpyHtoDAsync) to_device;
  decltype(&::cuMemcpyDtoHAsync) to_host;
  decltype(&::cuMemcpyDtoDAsync) on_device;
  decltype(&::cuMemcpyPeerAsync) to_peer;
  decltype(&::cuLaunchKernel) launch;
  bool simulated;

  // Of this process, initialised. Errors: kUnavailable.
  static Result<BandwidthDriver> open();
  Status check(CUresult result, const char* what) const;
};

enum class Road {
  kHostToDevicePinned,
  kHostToDevicePageable,
  kDeviceToHostPinned,
  kDeviceToHostPageable,
  kRead,
  kWrite,
  kCopy,
  kDriverCopy,
  kPeer,
};

class BandwidthGpu {
 public:
  // What the driver tells of a card without opening it. Errors: kInternal.
  static Result<BandwidthCard> describe(const BandwidthDriver& driver, int ordinal);

  // `asked_bytes` as buffer_bytes() takes it. Errors: those of it; kInternal with the call that failed.
  static Result<std::unique_ptr<BandwidthGpu>> open(const BandwidthDriver& driver, int ordinal,
                                                    std::uint64_t asked_bytes);
  ~BandwidthGpu();
  BandwidthGpu(const BandwidthGpu&) = delete;
  BandwidthGpu& operator=(const BandwidthGpu&) = delete;

  BandwidthCard& card() { return card_; }
  int ordinal() const { return ordinal_; }

  // Tries the kernels' shapes and keeps the fastest for each road, then sees to it that a copy is one.
  // Errors: kInternal.
  Status tune();
  // How the kernel of this road is launched; "" where it is none.
  std::string shape(Road road) const;

  // Makes the way for kPeer as short as it can be. True where the cards can reach each other's memory.
  bool connect(BandwidthGpu* peer);

  // One sample: enqueued, and later waited for, so that several cards can be at work together.
  Status enqueue(Road road, BandwidthGpu* peer = nullptr);
  Result<double> wait_seconds();
  std::uint64_t bytes(Road road, const BandwidthGpu* peer = nullptr) const;  // moved by a sample

 private:
  struct Kernels {
    KernelShape shape;
    CUfunction read = nullptr, write = nullptr, copy = nullptr;
  };
  struct Launch {
    const Kernels* kernels = nullptr;
    unsigned blocks = 0;
  };

  BandwidthGpu(const BandwidthDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  Status prepare(std::uint64_t asked_bytes);
  Status describe();
  Status load(const KernelShape& shape);
  Status go(Road road, BandwidthGpu* peer);
  Status launch(Road road, const Launch& how);
  Status prove_copy();
  Result<double> time(Road road, const Launch& how);

  const BandwidthDriver& driver_;
  int ordinal_;
  BandwidthCard card_;
  int multiprocessors_ = 0, threads_per_multiprocessor_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUdeviceptr from_ = 0, to_ = 0;
  void* pinned_ = nullptr;
  Status no_pinned_;
  std::vector<unsigned char> pageable_;
  std::vector<std::unique_ptr<Kernels>> kernels_;
  std::map<Road, Launch> chosen_;
};

}  // namespace sluice::cli::doctor
