// The driver's entry points that pipelines call, looked up once.
#pragma once

#include <cuda.h>

#include "sluice/base/status.h"

namespace sluice::graph {

struct DriverCalls {
  decltype(&::cuGetErrorName) error_name;
  decltype(&::cuCtxGetCurrent) current_context;
  decltype(&::cuCtxGetDevice) context_device;
  decltype(&::cuCtxSynchronize) synchronize_context;
  decltype(&::cuCtxGetStreamPriorityRange) priority_range;
  decltype(&::cuPointerGetAttribute) pointer_attribute;
  CUresult (*address_range)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  CUresult (*allocate)(CUdeviceptr*, std::size_t);
  CUresult (*free)(CUdeviceptr);
  decltype(&::cuMemHostAlloc) host_allocate;
  decltype(&::cuMemFreeHost) host_free;
  CUresult (*copy_in)(CUdeviceptr, const void*, std::size_t);
  CUresult (*copy_out)(void*, CUdeviceptr, std::size_t);
  decltype(&::cuMemcpyAsync) copy_async;
  decltype(&::cuMemsetD8Async) memset_async;
  decltype(&::cuLaunchKernel) launch_kernel;
  decltype(&::cuLaunchHostFunc) launch_host;
  decltype(&::cuStreamCreateWithPriority) stream_create;
  CUresult (*stream_destroy)(CUstream);
  decltype(&::cuStreamGetCtx) stream_context;
  decltype(&::cuStreamSynchronize) stream_synchronize;
  decltype(&::cuStreamWaitEvent) wait_event;
  CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
  decltype(&::cuStreamEndCapture) end_capture;
  decltype(&::cuEventCreate) event_create;
  CUresult (*event_destroy)(CUevent);
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventQuery) event_query;
  decltype(&::cuEventSynchronize) event_synchronize;
  decltype(&::cuGraphCreate) graph_create;
  decltype(&::cuGraphDestroy) graph_destroy;
  CUresult (*add_kernel)(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_KERNEL_NODE_PARAMS_v1*);
  decltype(&::cuGraphAddMemcpyNode) add_copy;
  decltype(&::cuGraphAddMemsetNode) add_memset;
  decltype(&::cuGraphAddHostNode) add_host;
  decltype(&::cuGraphAddChildGraphNode) add_child;
  decltype(&::cuGraphKernelNodeSetAttribute) kernel_attribute;  // null before CUDA 11.0
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  decltype(&::cuGraphExecDestroy) exec_destroy;
  CUresult (*set_kernel)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
  decltype(&::cuGraphExecMemcpyNodeSetParams) set_copy;
  decltype(&::cuGraphExecMemsetNodeSetParams) set_memset;
  decltype(&::cuGraphExecHostNodeSetParams) set_host;
  decltype(&::cuGraphExecChildGraphNodeSetParams) set_child;
  decltype(&::cuGraphLaunch) launch;

  // Of the driver that this process uses. Errors: kUnavailable.
  static Result<const DriverCalls*> get();

  const char* name_of(CUresult code) const;
};

}  // namespace sluice::graph
