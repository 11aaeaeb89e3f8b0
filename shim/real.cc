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
  get(&real.stream_destroy, "cuStreamDestroy_v2");
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
  get(&real.stream_begin_capture, "cuStreamBeginCapture_v2");
  get(&real.stream_end_capture, "cuStreamEndCapture");
  get(&real.stream_get_capture_info, "cuStreamGetCaptureInfo");
  get(&real.stream_get_capture_info_v2, "cuStreamGetCaptureInfo_v2");
  get(&real.stream_update_capture_dependencies, "cuStreamUpdateCaptureDependencies");
  get(&real.graph_destroy, "cuGraphDestroy");
  get(&real.graph_get_nodes, "cuGraphGetNodes");
  get(&real.graph_node_get_type, "cuGraphNodeGetType");
  get(&real.graph_node_get_dependencies, "cuGraphNodeGetDependencies");
  get(&real.graph_node_get_dependents, "cuGraphNodeGetDependentNodes");
  get(&real.graph_add_dependencies, "cuGraphAddDependencies");
  get(&real.graph_destroy_node, "cuGraphDestroyNode");
  get(&real.graph_child_get_graph, "cuGraphChildGraphNodeGetGraph");
  get(&real.graph_batch_mem_op_get_params, "cuGraphBatchMemOpNodeGetParams");
  real.graphs = real.stream_create != nullptr && real.stream_destroy != nullptr &&
                real.stream_begin_capture != nullptr && real.stream_end_capture != nullptr &&
                real.stream_get_capture_info != nullptr && real.stream_get_capture_info_v2 != nullptr &&
                real.stream_update_capture_dependencies != nullptr && real.graph_destroy != nullptr &&
                real.graph_get_nodes != nullptr && real.graph_node_get_type != nullptr &&
                real.graph_node_get_dependencies != nullptr && real.graph_node_get_dependents != nullptr &&
                real.graph_add_dependencies != nullptr && real.graph_destroy_node != nullptr &&
                real.graph_child_get_graph != nullptr && real.graph_batch_mem_op_get_params != nullptr;
}

}  // namespace sluice::shim
