// The driver functions that the shim calls for itself, looked up once when it is loaded.
#pragma once

#include <cuda.h>

#include "sluice/base/status.h"

namespace sluice::shim {

// Null where the installed driver has no such function; everything but the optional ones is there from driver 515 on.
struct Real {
  CUresult (*ctx_get_current)(CUcontext*);
  CUresult (*ctx_set_current)(CUcontext);
  CUresult (*ctx_get_device)(CUdevice*);
  CUresult (*ctx_get_flags)(unsigned*);
  CUresult (*primary_get_state)(CUdevice, unsigned*, int*);
  CUresult (*device_get_uuid)(CUuuid*, CUdevice);
  CUresult (*device_get_attribute)(int*, CUdevice_attribute, CUdevice);
  CUresult (*mem_alloc)(CUdeviceptr*, size_t);
  CUresult (*memset_d32_async)(CUdeviceptr, unsigned, size_t, CUstream);
  CUresult (*mem_host_register)(void*, size_t, unsigned);
  CUresult (*mem_host_get_device_pointer)(CUdeviceptr*, void*, unsigned);
  CUresult (*stream_wait_value32)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  CUresult (*stream_wait_value64)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
  CUresult (*stream_write_value32)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  CUresult (*stream_is_capturing)(CUstream, CUstreamCaptureStatus*);
  CUresult (*stream_get_ctx)(CUstream, CUcontext*);
  CUresult (*stream_create)(CUstream*, unsigned);
  CUresult (*stream_query)(CUstream);
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode*);
  CUresult (*stream_destroy)(CUstream);
  CUresult (*event_create)(CUevent*, unsigned);
  CUresult (*event_record)(CUevent, CUstream);
  CUresult (*event_query)(CUevent);
  CUresult (*event_elapsed)(float*, CUevent, CUevent);
  CUresult (*mem_get_info)(size_t*, size_t*);
  CUresult (*device_get_mem_pool)(CUmemoryPool*, CUdevice);  // optional, as the next three: driver 11.2
  CUresult (*device_get_default_mem_pool)(CUmemoryPool*, CUdevice);
  CUresult (*mem_pool_get_attribute)(CUmemoryPool, CUmemPool_attribute, void*);
  CUresult (*mem_pool_trim_to)(CUmemoryPool, size_t);
  CUresult (*graph_mem_get_attribute)(CUdevice, CUgraphMem_attribute, void*);  // optional: driver 11.4
  CUresult (*func_get_name)(const char**, CUfunction);                         // optional: driver 545
  CUresult (*kernel_get_name)(const char**, CUkernel);                         // optional: driver 545
  bool mem_ops;  // stream memory operations v2: driver 515

  // Graphs and capture: all of them are there, or `graphs` is false. Driver 515.
  CUresult (*stream_begin_capture)(CUstream, CUstreamCaptureMode);
  CUresult (*stream_end_capture)(CUstream, CUgraph*);
  CUresult (*stream_get_capture_info)(CUstream, CUstreamCaptureStatus*, cuuint64_t*);
  CUresult (*stream_get_capture_info_v2)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                         size_t*);
  CUresult (*stream_update_capture_dependencies)(CUstream, CUgraphNode*, size_t, unsigned);
  CUresult (*graph_destroy)(CUgraph);
  CUresult (*graph_get_nodes)(CUgraph, CUgraphNode*, size_t*);
  CUresult (*graph_node_get_type)(CUgraphNode, CUgraphNodeType*);
  CUresult (*graph_node_get_dependencies)(CUgraphNode, CUgraphNode*, size_t*);
  CUresult (*graph_node_get_dependents)(CUgraphNode, CUgraphNode*, size_t*);
  CUresult (*graph_add_dependencies)(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t);
  CUresult (*graph_destroy_node)(CUgraphNode);
  CUresult (*graph_child_get_graph)(CUgraphNode, CUgraph*);
  CUresult (*graph_batch_mem_op_get_params)(CUgraphNode, CUDA_BATCH_MEM_OP_NODE_PARAMS*);
  bool graphs;
};

// Filled by load_real(); read-only afterwards, so thread safe.
extern Real real;
// `handle` as driver::open_library gives it.
void load_real(void* handle);

// While one exists, this thread's driver calls cannot break another thread's global-mode stream capture.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    if (real.exchange_capture_mode != nullptr) real.exchange_capture_mode(&mode_);
  }
  ~RelaxedCapture() {
    if (real.exchange_capture_mode != nullptr) real.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace sluice::shim
