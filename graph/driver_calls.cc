#include "driver_calls.h"

#include <type_traits>

#include "sluice/driver.h"

namespace sluice::graph {
namespace {

struct Loaded {
  DriverCalls calls = {};
  Status status;
};

Loaded load() {
  Loaded result;
  Result<void*> library = driver::open_process_library();
  if (!library.ok()) {
    result.status = library.status();
    return result;
  }
  DriverCalls& calls = result.calls;
  const auto look = [&](const char* name, auto* out) {
    *out = driver::symbol<std::remove_reference_t<decltype(*out)>>(*library, name);
    if (*out == nullptr && result.status.ok())
      result.status =
          Status::error(Code::kUnavailable, "the driver has no %s: pipelines need driver 450 or newer", name);
  };
  look("cuGetErrorName", &calls.error_name);
  look("cuCtxGetCurrent", &calls.current_context);
  look("cuCtxGetDevice", &calls.context_device);
  look("cuCtxSynchronize", &calls.synchronize_context);
  look("cuCtxGetStreamPriorityRange", &calls.priority_range);
  look("cuPointerGetAttribute", &calls.pointer_attribute);
  look("cuMemGetAddressRange_v2", &calls.address_range);
  look("cuMemAlloc_v2", &calls.allocate);
  look("cuMemFree_v2", &calls.free);
  look("cuMemHostAlloc", &calls.host_allocate);
  look("cuMemFreeHost", &calls.host_free);
  look("cuMemcpyHtoD_v2", &calls.copy_in);
  look("cuMemcpyDtoH_v2", &calls.copy_out);
  look("cuMemcpyAsync", &calls.copy_async);
  look("cuMemsetD8Async", &calls.memset_async);
  look("cuLaunchKernel", &calls.launch_kernel);
  look("cuLaunchHostFunc", &calls.launch_host);
  look("cuStreamCreateWithPriority", &calls.stream_create);
  look("cuStreamDestroy_v2", &calls.stream_destroy);
  look("cuStreamGetCtx", &calls.stream_context);
  look("cuStreamSynchronize", &calls.stream_synchronize);
  look("cuStreamWaitEvent", &calls.wait_event);
  look("cuStreamBeginCapture_v2", &calls.begin_capture);
  look("cuStreamEndCapture", &calls.end_capture);
  look("cuEventCreate", &calls.event_create);
  look("cuEventDestroy_v2", &calls.event_destroy);
  look("cuEventRecord", &calls.event_record);
  look("cuEventQuery", &calls.event_query);
  look("cuEventSynchronize", &calls.event_synchronize);
  look("cuGraphCreate", &calls.graph_create);
  look("cuGraphDestroy", &calls.graph_destroy);
  look("cuGraphAddKernelNode", &calls.add_kernel);
  look("cuGraphAddMemcpyNode", &calls.add_copy);
  look("cuGraphAddMemsetNode", &calls.add_memset);
  look("cuGraphAddHostNode", &calls.add_host);
  look("cuGraphAddChildGraphNode", &calls.add_child);
  calls.kernel_attribute = driver::symbol<decltype(calls.kernel_attribute)>(*library, "cuGraphKernelNodeSetAttribute");
  look("cuGraphInstantiateWithFlags", &calls.instantiate);
  look("cuGraphExecDestroy", &calls.exec_destroy);
  look("cuGraphExecKernelNodeSetParams", &calls.set_kernel);
  look("cuGraphExecMemcpyNodeSetParams", &calls.set_copy);
  look("cuGraphExecMemsetNodeSetParams", &calls.set_memset);
  look("cuGraphExecHostNodeSetParams", &calls.set_host);
  look("cuGraphExecChildGraphNodeSetParams", &calls.set_child);
  look("cuGraphLaunch", &calls.launch);
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

}  // namespace sluice::graph
