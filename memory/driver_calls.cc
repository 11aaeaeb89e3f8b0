#include "driver_calls.h"

#include "sluice/driver.h"

namespace sluice::memory {
namespace {

struct Loaded {
  DriverCalls calls = {};
  Status status;
};

template <class F>
void look_up(void* library, const char* name, F* out, Status* status) {
  *out = driver::symbol<F>(library, name);
  if (*out == nullptr && status->ok())
    *status = Status::error(Code::kUnavailable, "the driver has no %s: the pool needs driver 450 or newer", name);
}

Loaded load() {
  Loaded result;
  Result<void*> library = driver::open_process_library();
  if (!library.ok()) {
    result.status = library.status();
    return result;
  }
  DriverCalls& calls = result.calls;
  const auto look = [&](const char* name, auto* out) { look_up(*library, name, out, &result.status); };
  look("cuGetErrorName", &calls.error_name);
  look("cuCtxGetCurrent", &calls.current_context);
  look("cuCtxGetDevice", &calls.context_device);
  look("cuCtxPushCurrent_v2", &calls.push_context);
  look("cuCtxPopCurrent_v2", &calls.pop_context);
  look("cuCtxSynchronize", &calls.synchronize_context);
  look("cuDeviceGetAttribute", &calls.device_attribute);
  look("cuMemGetInfo_v2", &calls.memory_info);
  look("cuMemAlloc_v2", &calls.allocate);
  look("cuMemFree_v2", &calls.free);
  look("cuMemGetAllocationGranularity", &calls.granularity);
  look("cuMemAddressReserve", &calls.reserve);
  look("cuMemAddressFree", &calls.unreserve);
  look("cuMemCreate", &calls.create);
  look("cuMemRelease", &calls.release);
  look("cuMemMap", &calls.map);
  look("cuMemUnmap", &calls.unmap);
  look("cuMemSetAccess", &calls.set_access);
  look("cuEventCreate", &calls.event_create);
  look("cuEventDestroy_v2", &calls.event_destroy);
  look("cuEventRecord", &calls.event_record);
  look("cuEventQuery", &calls.event_query);
  look("cuEventSynchronize", &calls.event_synchronize);
  look("cuStreamQuery", &calls.stream_query);
  look("cuStreamWaitEvent", &calls.wait_event);
  look("cuStreamIsCapturing", &calls.is_capturing);
  look("cuThreadExchangeStreamCaptureMode", &calls.exchange_capture_mode);
  return result;
}

}  // namespace

Result<const DriverCalls*> DriverCalls::get() {
  static const Loaded loaded = load();
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.calls;
}

const char* DriverCalls::name_of(CUresult code) const {
  const char* name = nullptr;
  return error_name(code, &name) == CUDA_SUCCESS && name != nullptr ? name : "an unknown error";
}

}  // namespace sluice::memory
