// Graphs of the emulated driver: built, captured, executed, updated.
#include "graph_test.h"

namespace {

using sluice::emulator::testing::GraphTest;

// One word: the kernels' order does not show. The second is written by a memset, copied, and added to: there it does.
TEST_F(GraphTest, CapturedAndBuiltByHandGiveTheSame) {
  static std::atomic<int> called{0};
  const auto call = [](void*) { called.fetch_add(1); };
  const CUgraph by_capture = captured([&] {
    add(3, stream_);
    EXPECT_OK(cuMemsetD32Async(words_ + 4, 40, 1, stream_));
    add(2, stream_, 1);
    EXPECT_OK(cuMemcpyDtoDAsync(words_ + 8, words_ + 4, 4, stream_));
    EXPECT_OK(cuLaunchHostFunc(stream_, call, nullptr));
  });
  EXPECT_EQ(word(), 0u) << "nothing ran";
  CUgraph by_hand = nullptr;
  EXPECT_OK(cuGraphCreate(&by_hand, 0));
  const CUgraphNode first = add_kernel(by_hand, {}, 3);
  CUgraphNode fill = nullptr, copy = nullptr, host = nullptr;
  const CUDA_MEMSET_NODE_PARAMS fill_params = {words_ + 4, 0, 40, 4, 1, 1};
  EXPECT_OK(cuGraphAddMemsetNode(&fill, by_hand, &first, 1, &fill_params, context_));
  const CUgraphNode second = add_kernel(by_hand, {fill}, 2, 1);
  CUDA_MEMCPY3D copy_params = {};
  copy_params.srcMemoryType = copy_params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy_params.srcDevice = words_ + 4;
  copy_params.dstDevice = words_ + 8;
  copy_params.WidthInBytes = 4;
  copy_params.Height = copy_params.Depth = 1;
  EXPECT_OK(cuGraphAddMemcpyNode(&copy, by_hand, &second, 1, &copy_params, context_));
  const CUDA_HOST_NODE_PARAMS host_params = {call, nullptr};
  EXPECT_OK(cuGraphAddHostNode(&host, by_hand, &copy, 1, &host_params));
  EXPECT_EQ(types(by_capture), types(by_hand));
  EXPECT_EQ(edges(by_capture), edges(by_hand));
  for (const CUgraph graph : {by_capture, by_hand}) {
    called = 0;
    EXPECT_OK(cuMemsetD32(words_, 0, kWords));
    run(graph, 3);
    EXPECT_EQ(word(0), 9u);
    EXPECT_EQ(word(1), 42u);
    EXPECT_EQ(word(2), 42u);
    EXPECT_EQ(called.load(), 3);
    EXPECT_OK(cuGraphDestroy(graph));
  }
}

// Two branches: what comes before the fork, then each side, then what joins them. With the one stopped, the other runs.
TEST_F(GraphTest, BranchesRunBesideEachOther) {
  Gate gate;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  const CUgraph graph = captured([&] {
    add(1, stream_);
    EXPECT_OK(cuEventRecord(fork, stream_));
    EXPECT_OK(cuStreamWaitEvent(other_, fork, 0));
    stop_at(gate, stream_);
    add(10, stream_, 1);
    add(20, other_, 2);
    EXPECT_OK(cuEventRecord(join, other_));
    EXPECT_OK(cuStreamWaitEvent(stream_, join, 0));
    EXPECT_OK(cuMemcpyDtoDAsync(words_ + 12, words_ + 8, 4, stream_));
  });
  EXPECT_EQ(types(graph)[1], CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  EXPECT_EQ(edges(graph), 5u);
  CUgraphExec exec = executable(graph);
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_OK(cuGraphLaunch(exec, other_)) << "the same one again, in another stream: it waits";
  add(1, stream_, 4);
  unsigned value = 0;
  while (value != 20) {
    EXPECT_OK(cuMemcpyDtoHAsync(&value, words_ + 8, 4, CU_STREAM_PER_THREAD));
    EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }
  EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(other_), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(cuStreamSynchronize(stream_));
  EXPECT_OK(cuStreamSynchronize(other_));
  EXPECT_EQ(word(0), 2u);
  EXPECT_EQ(word(1), 20u);
  EXPECT_EQ(word(2), 40u);
  EXPECT_EQ(word(3), 40u);
  EXPECT_EQ(word(4), 1u);
  EXPECT_OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, ANodeCostsLessThanALaunch) {
  constexpr int kKernels = 200;
  CUevent begin = nullptr, middle = nullptr, end = nullptr;
  for (CUevent* event : {&begin, &middle, &end}) ASSERT_OK(cuEventCreate(event, CU_EVENT_DEFAULT));
  const auto kernels = [&] {
    for (int i = 0; i < kKernels; ++i) add(1, stream_);
  };
  CUgraphExec exec = executable(captured(kernels));
  Gate gate;  // all is submitted before it starts
  stop_at(gate, stream_);
  EXPECT_OK(cuEventRecord(begin, stream_));
  kernels();
  EXPECT_OK(cuEventRecord(middle, stream_));
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_OK(cuEventRecord(end, stream_));
  gate.open();
  EXPECT_OK(cuStreamSynchronize(stream_));
  float launches = 0, graph = 0;
  EXPECT_OK(cuEventElapsedTime(&launches, begin, middle));
  EXPECT_OK(cuEventElapsedTime(&graph, middle, end));
  EXPECT_LT(graph, 0.8 * launches);
}

TEST_F(GraphTest, ClonesAndChildrenStandByThemselves) {
  CUgraph child = nullptr, parent = nullptr, clone = nullptr;
  EXPECT_OK(cuGraphCreate(&child, 0));
  const CUgraphNode inner = add_kernel(child, {}, 5);
  EXPECT_OK(cuGraphCreate(&parent, 0));
  const CUgraphNode first = add_kernel(parent, {}, 1);
  CUgraphNode node = nullptr, twin = nullptr;
  EXPECT_OK(cuGraphAddChildGraphNode(&node, parent, &first, 1, child));
  add_kernel(parent, {node}, 1);
  EXPECT_OK(cuGraphClone(&clone, parent));
  EXPECT_OK(cuGraphNodeFindInClone(&twin, first, clone));
  EXPECT_NE(twin, first);
  EXPECT_EQ(cuGraphNodeFindInClone(&twin, inner, clone), CUDA_ERROR_INVALID_VALUE) << "the node has a copy of it";
  EXPECT_OK(cuGraphDestroy(child));
  EXPECT_EQ(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
  run(parent, 2);
  EXPECT_EQ(word(), 14u);
  EXPECT_OK(cuGraphDestroy(parent));
  run(clone);
  EXPECT_EQ(word(), 21u);
  CUgraph around = captured([&] {
    CUgraphExec exec = executable(clone);
    EXPECT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_OK(cuGraphExecDestroy(exec));
  });
  EXPECT_EQ(types(around), std::vector<CUgraphNodeType>{CU_GRAPH_NODE_TYPE_GRAPH});
  run(around);
  EXPECT_EQ(word(), 28u);
}

TEST_F(GraphTest, ParametersChangeInTheGraphAndInTheExecutable) {
  CUgraph graph = nullptr;
  EXPECT_OK(cuGraphCreate(&graph, 0));
  const CUgraphNode node = add_kernel(graph, {}, 1);
  CUgraphExec exec = executable(graph);
  CUDA_KERNEL_NODE_PARAMS asked = {};
  EXPECT_OK(cuGraphKernelNodeGetParams(node, &asked));
  EXPECT_EQ(asked.func, function("increment"));
  EXPECT_EQ(*static_cast<unsigned*>(asked.kernelParams[1]), 1u);
  unsigned by = 100;
  CUdeviceptr at = words_;
  void* params[2];
  const CUDA_KERNEL_NODE_PARAMS changed = add_params(&by, &at, params);
  EXPECT_OK(cuGraphExecKernelNodeSetParams(exec, node, &changed));
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_EQ(word(), 100u);
  run(graph);
  EXPECT_EQ(word(), 101u) << "the graph itself is as it was";
  EXPECT_OK(cuGraphKernelNodeSetParams(node, &changed));
  run(graph);
  EXPECT_EQ(word(), 201u);
  EXPECT_OK(cuGraphNodeSetEnabled(exec, node, 0));
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_EQ(word(), 201u);
}

TEST_F(GraphTest, AnUpdateNeedsTheSameTopology) {
  const auto kernels = [&](int count, unsigned by) {
    return captured([&] {
      for (int i = 0; i < count; ++i) add(by, stream_);
    });
  };
  CUgraphExec exec = executable(kernels(3, 1));
  CUgraphExecUpdateResult result;
  EXPECT_OK(update(exec, kernels(3, 10), &result));
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_EQ(word(), 30u);
  EXPECT_EQ(update(exec, kernels(4, 1), &result), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  const CUgraph other_type = captured([&] {
    add(1, stream_);
    EXPECT_OK(cuMemsetD32Async(words_, 0, 1, stream_));
    add(1, stream_);
  });
  EXPECT_EQ(update(exec, other_type, &result), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_EQ(word(), 60u) << "a failed update changes nothing";
}

TEST_F(GraphTest, EventsOutsideOfTheGraphAreNodes) {
  CUevent inside = nullptr, outside = nullptr;
  ASSERT_OK(cuEventCreate(&inside, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
  const CUgraph graph = captured([&] {
    EXPECT_OK(cuStreamWaitEvent(stream_, outside, CU_EVENT_WAIT_EXTERNAL));
    add(1, stream_);
    EXPECT_OK(cuEventRecordWithFlags(inside, stream_, CU_EVENT_RECORD_EXTERNAL));
  });
  EXPECT_EQ(types(graph), (std::vector<CUgraphNodeType>{CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_KERNEL,
                                                        CU_GRAPH_NODE_TYPE_EVENT_RECORD}));
  Gate gate;
  stop_at(gate, other_);
  EXPECT_OK(cuEventRecord(outside, other_));
  CUgraphExec exec = executable(graph);
  EXPECT_OK(cuGraphLaunch(exec, stream_));
  EXPECT_EQ(cuEventQuery(inside), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_OK(cuEventSynchronize(inside));
  EXPECT_EQ(word(), 1u);
}

TEST_F(GraphTest, BodiesAndDeviceLaunchesTakeNoMemoryOperations) {
  Gate gate;
  const CUgraph waits = captured([&] {
    add(1, stream_);
    stop_at(gate, stream_);
    add(1, stream_);
  });
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&exec, waits, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
  CUDA_GRAPH_INSTANTIATE_PARAMS instantiate = {};
  instantiate.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, waits, &instantiate), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(instantiate.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
  EXPECT_NE(instantiate.hErrNode_out, nullptr);

  CUgraph graph = nullptr;
  EXPECT_OK(cuGraphCreate(&graph, 0));
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  EXPECT_OK(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, context_, 1, 1));
  CUgraphNode node = nullptr;
  EXPECT_OK(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  const CUgraph body = params.conditional.phGraph_out[0];
  EXPECT_OK(cuStreamBeginCaptureToGraph(stream_, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuStreamWaitValue64(stream_, gate.address(), 0, CU_STREAM_WAIT_VALUE_EQ),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph none = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraphNode child = nullptr;
  EXPECT_EQ(cuGraphAddChildGraphNode(&child, body, nullptr, 0, waits), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_OK(cuStreamBeginCaptureToGraph(stream_, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  add(7, stream_);
  EXPECT_OK(cuStreamEndCapture(stream_, &none));
  EXPECT_EQ(none, body);
  run(graph, 2);
  EXPECT_EQ(word(), 14u);
}

TEST_F(GraphTest, ManyNodesAndManyBranches) {
  CUgraph graph = nullptr;
  EXPECT_OK(cuGraphCreate(&graph, 0));
  std::vector<CUgraphNode> ends;
  for (unsigned branch = 0; branch < 50; ++branch) {
    CUgraphNode last = add_kernel(graph, {}, 1, branch);
    for (int i = 0; i < 30; ++i) last = add_kernel(graph, {last}, 1, branch);
    ends.push_back(last);
  }
  CUgraphNode end = nullptr;
  EXPECT_OK(cuGraphAddEmptyNode(&end, graph, ends.data(), ends.size()));
  add_kernel(graph, {end}, 5, 63);
  CUgraphNode from = ends[0], to = ends[1];
  EXPECT_OK(cuGraphAddDependencies(graph, &from, &to, nullptr, 1));
  EXPECT_OK(cuGraphAddDependencies(graph, &to, &from, nullptr, 1));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE) << "a cycle";
  EXPECT_OK(cuGraphRemoveDependencies(graph, &to, &from, nullptr, 1));
  run(graph, 2);
  EXPECT_EQ(word(0), 62u);
  EXPECT_EQ(word(49), 62u);
  EXPECT_EQ(word(63), 10u);
}

}  // namespace
