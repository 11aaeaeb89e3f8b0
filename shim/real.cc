#include "real.h"

#include "sluice/driver.h"

namespace sluice::shim {

Real real;

void load_real(void* handle) {
  const auto get = [handle](auto* function, const char* name) {
    *reinterpret_cast<void**>(function) = driver::symbol_address(handle, name);
  };
  get(&real.ctx_get_current, "cuCtxGetCurrent");
  get(&real.ctx_set_current, "cuCtxSetCurrent");
  get(&real.ctx_get_device, "cuCtxGetDevice");
  get(&real.ctx_get_flags, "cuCtxGetFlags");
  get(&real.primary_get_state, "cuDevicePrimaryCtxGetState");
  get(&real.device_get_uuid, "cuDeviceGetUuid_v2");
  get(&real.device_get_attribute, "cuDeviceGetAttribute");
  get(&real.mem_alloc, "cuMemAlloc_v2");
  get(&real.memset_d32_async, "cuMemsetD32Async");
  get(&real.mem_host_register, "cuMemHostRegister_v2");
  get(&real.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  get(&real.stream_wait_value32, "cuStreamWaitValue32_v2");
  get(&real.stream_wait_value64, "cuStreamWaitValue64_v2");
  get(&real.stream_write_value32, "cuStreamWriteValue32_v2");
  get(&real.stream_is_capturing, "cuStreamIsCapturing");
  get(&real.stream_get_ctx, "cuStreamGetCtx");
  get(&real.stream_create, "cuStreamCreate");
  get(&real.stream_query, "cuStreamQuery");
  get(&real.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  get(&real.event_create, "cuEventCreate");
  get(&real.event_record, "cuEventRecord");
  get(&real.event_query, "cuEventQuery");
  get(&real.event_elapsed, "cuEventElapsedTime");
  get(&real.mem_get_info, "cuMemGetInfo_v2");
  get(&real.device_get_mem_pool, "cuDeviceGetMemPool");
  get(&real.device_get_default_mem_pool, "cuDeviceGetDefaultMemPool");
  get(&real.mem_pool_get_attribute, "cuMemPoolGetAttribute");
  get(&real.mem_pool_trim_to, "cuMemPoolTrimTo");
  get(&real.graph_mem_get_attribute, "cuDeviceGetGraphMemAttribute");
  get(&real.func_get_name, "cuFuncGetName");
  get(&real.kernel_get_name, "cuKernelGetName");
  real.mem_ops = real.stream_wait_value32 != nullptr && real.stream_write_value32 != nullptr &&
                 real.mem_host_register != nullptr && real.mem_host_get_device_pointer != nullptr &&
                 real.ctx_get_current != nullptr && real.ctx_get_device != nullptr && real.device_get_uuid != nullptr &&
                 real.stream_is_capturing != nullptr;
}

}  // namespace sluice::shim
