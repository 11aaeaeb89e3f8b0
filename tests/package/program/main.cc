// A pipeline of a memset and a copy, from an installed Sluice.
#include <cstdio>
#include <utility>

#include "sluice/driver.h"
#include "sluice/graph.h"

int main() {
  auto library = sluice::driver::open_process_library();
  if (!library.ok()) return std::puts(library.status().message()), 1;
#define CALL(function, name) sluice::driver::symbol<decltype(&function)>(*library, name)
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  if (CALL(::cuInit, "cuInit")(0) != CUDA_SUCCESS ||
      CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, 0) != CUDA_SUCCESS ||
      CALL(cuCtxSetCurrent, "cuCtxSetCurrent")(context) != CUDA_SUCCESS ||
      CALL(cuMemAlloc, "cuMemAlloc_v2")(&memory, 4096) != CUDA_SUCCESS)
    return std::puts("no device"), 1;
  auto pipeline = sluice::graph::Pipeline::create();
  if (!pipeline.ok()) return std::puts(pipeline.status().message()), 1;
  auto& p = **pipeline;
  const auto out = p.add_buffer("out", memory, 4096);
  const auto half = p.add_temporary("half", 2048);
  p.add_memset("set", half, 7);
  p.add_copy("copy", out, half, 2048);
  if (auto status = p.launch(nullptr); !status.ok()) return std::puts(status.message()), 1;
  unsigned char byte = 0;
  CALL(cuMemcpyDtoH, "cuMemcpyDtoH_v2")(&byte, memory + 2047, 1);
  return byte == 7 ? 0 : 1;
}
