// The driver's entry points that the pool calls, looked up once.
#pragma once

#include <cuda.h>

#include "sluice/base/status.h"

namespace sluice::memory {

struct DriverCalls {
  decltype(&::cuGetErrorName) error_name;
  decltype(&::cuCtxGetCurrent) current_context;
  decltype(&::cuCtxGetDevice) context_device;
  CUresult (*push_context)(CUcontext);
  CUresult (*pop_context)(CUcontext*);
  decltype(&::cuCtxSynchronize) synchronize_context;
  decltype(&::cuDeviceGetAttribute) device_attribute;
  CUresult (*memory_info)(std::size_t*, std::size_t*);
  CUresult (*allocate)(CUdeviceptr*, std::size_t);
  CUresult (*free)(CUdeviceptr);
  decltype(&::cuMemGetAllocationGranularity) granularity;
  decltype(&::cuMemAddressReserve) reserve;
  decltype(&::cuMemAddressFree) unreserve;
  decltype(&::cuMemCreate) create;
  decltype(&::cuMemRelease) release;
  decltype(&::cuMemMap) map;
  decltype(&::cuMemUnmap) unmap;
  decltype(&::cuMemSetAccess) set_access;
  decltype(&::cuEventCreate) event_create;
  CUresult (*event_destroy)(CUevent);
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventQuery) event_query;
  decltype(&::cuEventSynchronize) event_synchronize;
  decltype(&::cuStreamQuery) stream_query;
  decltype(&::cuStreamWaitEvent) wait_event;
  decltype(&::cuStreamIsCapturing) is_capturing;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode;

  // Of the driver that this process uses. Errors: kUnavailable.
  static Result<const DriverCalls*> get();

  const char* name_of(CUresult code) const;
};

}  // namespace sluice::memory
