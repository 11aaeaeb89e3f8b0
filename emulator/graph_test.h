// What the tests of graphs and of capture share.
#pragma once

#include <functional>

#include "driver_test.h"

namespace sluice::emulator::testing {

// Two streams, and words that are 0.
class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuMemAlloc(&words_, kWords * 4));
    ASSERT_OK(cuMemsetD32(words_, 0, kWords));
    ASSERT_OK(cuCtxSynchronize());
  }
  void add(unsigned by, CUstream stream, unsigned word = 0) {
    CUdeviceptr at = words_ + 4 * word;
    void* params[] = {&at, &by};
    EXPECT_OK(cuLaunchKernel(function("increment"), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  }
  CUDA_KERNEL_NODE_PARAMS add_params(unsigned* by, CUdeviceptr* at, void** params) {
    params[0] = at;
    params[1] = by;
    CUDA_KERNEL_NODE_PARAMS p = {};
    p.func = function("increment");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    return p;
  }
  CUgraphNode add_kernel(CUgraph graph, std::vector<CUgraphNode> before, unsigned by, unsigned word = 0) {
    CUdeviceptr at = words_ + 4 * word;
    void* params[2];
    const CUDA_KERNEL_NODE_PARAMS p = add_params(&by, &at, params);
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode(&node, graph, before.data(), before.size(), &p));
    return node;
  }
  CUgraph captured(const std::function<void()>& work, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamBeginCapture(stream_, mode));
    work();
    EXPECT_OK(cuStreamEndCapture(stream_, &graph));
    return graph;
  }
  CUgraphExec executable(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
  }
  void run(CUgraph graph, int times = 1) {
    CUgraphExec exec = executable(graph);
    for (int i = 0; i < times; ++i) EXPECT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_OK(cuStreamSynchronize(stream_));
    EXPECT_OK(cuGraphExecDestroy(exec));
  }
  unsigned word(unsigned index = 0) {
    unsigned value = 0;
    EXPECT_OK(cuStreamSynchronize(stream_));
    EXPECT_OK(cuMemcpyDtoH(&value, words_ + 4 * index, 4));
    return value;
  }
  std::vector<CUgraphNodeType> types(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_OK(cuGraphGetNodes(graph, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    EXPECT_OK(cuGraphGetNodes(graph, nodes.data(), &count));
    std::vector<CUgraphNodeType> out(count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_OK(cuGraphNodeGetType(nodes[i], &out[i]));
    return out;
  }
  std::vector<CUgraphNode> nodes(CUgraph graph) {
    std::vector<CUgraphNode> out(64);
    std::size_t count = out.size();
    EXPECT_OK(cuGraphGetNodes(graph, out.data(), &count));
    out.resize(count);
    return out;
  }
  std::size_t edges(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_OK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
    return count;
  }
  CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult* result) {
    CUgraphExecUpdateResultInfo info = {};
    const CUresult error = cuGraphExecUpdate(exec, graph, &info);
    *result = info.result;
    return error;
  }
  // Work of a stream of this process that ends when the gate opens, so that all behind it is still to come.
  void stop_at(const Gate& gate, CUstream stream) {
    EXPECT_OK(cuStreamWaitValue64(stream, gate.address(), 0, CU_STREAM_WAIT_VALUE_EQ));
  }

  static constexpr unsigned kWords = 64;
  CUstream stream_ = nullptr, other_ = nullptr;
  CUdeviceptr words_ = 0;
};

}  // namespace sluice::emulator::testing
