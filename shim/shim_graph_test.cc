// Captured graphs under the shim: gates as nodes, and where there can be none. Looks at the graphs past the shim.
#include <algorithm>
#include <ostream>
#include <thread>

#include "graphs.h"
#include "shim_test.h"

namespace sluice::shim {
namespace {

using board::Whole;

// Entry points of graphs, by the names that are exported.
struct GraphApi {
  explicit GraphApi(void* library) {
    const auto get = [library](auto* function, const char* name) {
      *reinterpret_cast<void**>(function) = dlsym(library, name);
      ASSERT_NE(*function, nullptr) << name;
    };
    get(&begin, "cuStreamBeginCapture_v2");
    get(&begin_to_graph, "cuStreamBeginCaptureToGraph");
    get(&end, "cuStreamEndCapture");
    get(&status, "cuStreamIsCapturing");
    get(&create, "cuGraphCreate");
    get(&clone, "cuGraphClone");
    get(&nodes, "cuGraphGetNodes");
    get(&edges, "cuGraphGetEdges_v2");
    get(&type, "cuGraphNodeGetType");
    get(&add_kernel, "cuGraphAddKernelNode_v2");
    get(&add_child, "cuGraphAddChildGraphNode");
    get(&add_node, "cuGraphAddNode_v2");
    get(&condition, "cuGraphConditionalHandleCreate");
    get(&instantiate, "cuGraphInstantiateWithFlags");
    get(&destroy, "cuGraphExecDestroy");
    get(&update, "cuGraphExecUpdate_v2");
    get(&launch, "cuGraphLaunch");
    get(&event_wait, "cuStreamWaitEvent");
    get(&context_create, "cuCtxCreate_v4");
    get(&context_destroy, "cuCtxDestroy_v2");
    get(&primary_release, "cuDevicePrimaryCtxRelease_v2");
  }
  decltype(&::cuStreamBeginCapture) begin;
  decltype(&::cuStreamBeginCaptureToGraph) begin_to_graph;
  decltype(&::cuStreamEndCapture) end;
  decltype(&::cuStreamIsCapturing) status;
  decltype(&::cuGraphCreate) create;
  decltype(&::cuGraphClone) clone;
  decltype(&::cuGraphGetNodes) nodes;
  decltype(&::cuGraphGetEdges) edges;
  decltype(&::cuGraphNodeGetType) type;
  decltype(&::cuGraphAddKernelNode) add_kernel;
  decltype(&::cuGraphAddChildGraphNode) add_child;
  decltype(&::cuGraphAddNode) add_node;
  decltype(&::cuGraphConditionalHandleCreate) condition;
  decltype(&::cuGraphInstantiate) instantiate;
  decltype(&::cuGraphExecDestroy) destroy;
  decltype(&::cuGraphExecUpdate) update;
  decltype(&::cuGraphLaunch) launch;
  decltype(&::cuStreamWaitEvent) event_wait;
  decltype(&::cuCtxCreate) context_create;
  decltype(&::cuCtxDestroy) context_destroy;
  decltype(&::cuDevicePrimaryCtxRelease) primary_release;
};

class ShimGraphTest : public ShimTest {
 protected:
  static void SetUpTestSuite() {
    ShimTest::SetUpTestSuite();
    if (graphs_ == nullptr) graphs_ = new GraphApi(dlopen(SLUICE_SHIM, RTLD_NOW | RTLD_LOCAL));
  }
  const GraphApi& graphs() const { return *graphs_; }

  void adds(int count, CUdeviceptr word, CUstream into = nullptr) const {
    for (int i = 0; i < count; ++i) add_seven(shim().launch, into != nullptr ? into : stream(), word);
  }
  template <class Work>
  CUgraph captured(Work work, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    CUgraph graph = nullptr;
    EXPECT_EQ(graphs().begin(stream(), mode), CUDA_SUCCESS);
    work();
    EXPECT_EQ(graphs().end(stream(), &graph), CUDA_SUCCESS);
    return graph;
  }
  CUgraphExec executable(CUgraph graph, unsigned long long flags = 0) const {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(graphs().instantiate(&exec, graph, flags), CUDA_SUCCESS);
    return exec;
  }
  int count(CUgraph graph, CUgraphNodeType wanted) const {
    CUgraphNode nodes[256];
    std::size_t all = 256;
    EXPECT_EQ(graphs().nodes(graph, nodes, &all), CUDA_SUCCESS);
    return static_cast<int>(std::count_if(nodes, nodes + all, [&](CUgraphNode node) {
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      EXPECT_EQ(graphs().type(node, &type), CUDA_SUCCESS);
      return type == wanted;
    }));
  }
  int gates(CUgraph graph) const { return count(graph, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP); }
  std::size_t edges(CUgraph graph) const {
    std::size_t count = 0;
    EXPECT_EQ(graphs().edges(graph, nullptr, nullptr, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  std::uint64_t whole(Whole reason) const { return self().counters.graphs_whole[static_cast<int>(reason)].load(); }

  // Launches it and counts one launch under that reason.
  void expect_whole(CUgraphExec exec, Whole reason) const {
    const std::uint64_t before = whole(reason);
    EXPECT_EQ(graphs().launch(exec, stream()), CUDA_SUCCESS);
    EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    EXPECT_EQ(whole(reason), before + 1);
  }
  // A wait of the program's own in the capture, which finish() ends.
  void park() const {
    EXPECT_EQ(shim().wait_value(stream(), parking_address(), 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  }

  // Launches a graph that adds to `started` before it parks; returns once it is inside.
  void launch_into(CUgraphExec exec, CUdeviceptr started) const {
    const unsigned before = now(started);
    begin_parking();
    EXPECT_EQ(graphs().launch(exec, stream()), CUDA_SUCCESS);
    EXPECT_TRUE(eventually([&] { return now(started) != before; }));
  }

  static inline const GraphApi* graphs_ = nullptr;
};

constexpr int kEvery = static_cast<int>(kGraphSpacing);

TEST_F(ShimGraphTest, AGateComesBeforeEveryFewKernels) {
  const std::uint64_t before = self().counters.graphs_gated.load();
  const CUdeviceptr word = word_of(0);
  EXPECT_EQ(gates(captured([&] { adds(kEvery, word); })), 0) << "the launch itself is gated";
  const CUgraph graph = captured([&] { adds(3 * kEvery, word); });
  EXPECT_EQ(gates(graph), 2);
  EXPECT_EQ(count(graph, CU_GRAPH_NODE_TYPE_KERNEL), 3 * kEvery);
  EXPECT_EQ(edges(graph), 3u * kEvery + 1);
  EXPECT_EQ(self().counters.graphs_gated.load(), before + 1);
  EXPECT_EQ(now(word), 0u);
  CUgraphExec exec = executable(graph);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(graphs().launch(exec, stream()), CUDA_SUCCESS);
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(word), 7u * 9 * kEvery);
  EXPECT_EQ(graphs().destroy(exec), CUDA_SUCCESS);
}

TEST_F(ShimGraphTest, AClosedGateHoldsInsideOfTheGraph) {
  const int above = add_other(kAbove);
  const CUdeviceptr word = word_of(0), started = word_of(0);
  CUgraphExec exec = executable(captured([&] {
    adds(1, started);
    park();
    adds(kEvery - 1, word);
    adds(4 * kEvery, word);
  }));
  launch_into(exec, started);
  freeze();
  finish();
  const unsigned first = 7u * (kEvery - 1), all = first + 7u * 4 * kEvery;
  EXPECT_TRUE(eventually([&] { return now(word) == first; }));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(now(word), first) << "though the GPU does other work";
  EXPECT_EQ(self().active.load(), 1u) << "it counts as work that is held";
  const std::uint64_t holds = self().counters.holds.load();
  thaw();
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(word), all);
  EXPECT_EQ(self().counters.holds.load(), holds + 1);
  // And closed by somebody who dies meanwhile, it opens by itself.
  launch_into(exec, started);
  board::close_gate(&the_board(), client(), board::closer_bit(above), now_ns());
  other(above).owner.store(own_identity() + (ProcessIdentity{1} << kPidBits));  // nobody's
  finish();
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(word), 2 * all);
}

TEST_F(ShimGraphTest, EachBranchHasGatesOfItsOwn) {
  add_other(kAbove);
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_EQ(shim().stream_create(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(shim().event_create(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(shim().event_create(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  const CUdeviceptr one = word_of(0), two = word_of(0), started = word_of(0);
  const CUgraph graph = captured([&] {
    adds(1, started);
    park();
    EXPECT_EQ(shim().event_record(fork, stream()), CUDA_SUCCESS);
    EXPECT_EQ(graphs().event_wait(side, fork, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2 * kEvery - 1; ++i) {
      adds(1, one);
      adds(1, two, side);
    }
    EXPECT_EQ(shim().event_record(join, side), CUDA_SUCCESS);
    EXPECT_EQ(graphs().event_wait(stream(), join, 0), CUDA_SUCCESS);
  });
  EXPECT_EQ(gates(graph), 3) << "one each, and the program's wait";
  CUgraphExec exec = executable(graph);
  launch_into(exec, started);
  freeze();
  finish();
  const unsigned of_one = 7u * (kEvery - 1), of_two = 7u * kEvery;
  EXPECT_TRUE(eventually([&] { return now(one) == of_one && now(two) == of_two; }));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(now(one) + now(two), of_one + of_two);
  thaw();
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(one) + now(two), 2 * 7u * (2 * kEvery - 1));
  EXPECT_EQ(shim().stream_destroy(side), CUDA_SUCCESS);
}

// The board and the job's priority change between the captures; the nodes do not.
TEST_F(ShimGraphTest, ASecondCaptureUpdatesTheFirst) {
  const CUdeviceptr first = word_of(0), second = word_of(0);
  CUgraphExec exec = executable(captured([&] { adds(10 * kEvery, first); }));
  const int above = add_other(kAbove);
  job_of(client()).priority.store(kAbove + 1);
  the_board().epoch.fetch_add(1);
  CUgraphExecUpdateResultInfo info = {};
  EXPECT_EQ(graphs().update(exec, captured([&] { adds(10 * kEvery, second); }), &info), CUDA_SUCCESS);
  job_of(client()).priority.store(kOwn);
  job_of(above).priority.store(kBelow);
  the_board().epoch.fetch_add(1);
  EXPECT_EQ(graphs().update(exec, captured([&] { adds(10 * kEvery, second); }), &info), CUDA_SUCCESS);
  EXPECT_EQ(graphs().update(exec, captured([&] { adds(10 * kEvery + 1, second); }), &info),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
      << "another topology is the program's own";
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(graphs().launch(exec, stream()), CUDA_SUCCESS);
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(first), 0u);
  EXPECT_EQ(now(second), 70u * kEvery);
}

class CaptureModeTest : public ShimGraphTest, public testing::WithParamInterface<CUstreamCaptureMode> {};

// Another thread works meanwhile, and the marker thread with it.
TEST_P(CaptureModeTest, GatesBreakNoCapture) {
  add_other(kAbove);
  add_other(kBelow);
  std::atomic<bool> over{false};
  std::thread other_work([&] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    CUstream own = nullptr;
    EXPECT_EQ(shim().stream_create(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    while (!over.load()) {
      for (int i = 0; i < 20; ++i) spin(own, 20'000);
      EXPECT_EQ(shim().synchronize(own), CUDA_SUCCESS);
    }
    EXPECT_EQ(shim().stream_destroy(own), CUDA_SUCCESS);
  });
  const CUdeviceptr word = word_of(0);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(gates(captured([&] { adds(3 * kEvery, word); }, GetParam())), 2);
  }
  over = true;
  other_work.join();
}
INSTANTIATE_TEST_SUITE_P(Modes, CaptureModeTest,
                         testing::Values(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED),
                         testing::PrintToStringParamName());

// The gate is in the capture already when the program's own call is refused.
TEST_F(ShimGraphTest, AFailedLaunchBehindAGateLeavesNoBranchOpen) {
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_EQ(shim().stream_create(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(shim().event_create(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(shim().event_create(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  const CUdeviceptr word = word_of(0);
  const CUgraph graph = captured([&] {
    EXPECT_EQ(shim().event_record(fork, stream()), CUDA_SUCCESS);
    EXPECT_EQ(graphs().event_wait(side, fork, 0), CUDA_SUCCESS);
    adds(kEvery, word, side);
    EXPECT_EQ(shim().event_record(join, side), CUDA_SUCCESS);
    EXPECT_EQ(graphs().event_wait(stream(), join, 0), CUDA_SUCCESS);
    EXPECT_EQ(shim().launch(increment(), 0, 1, 1, 1, 1, 1, 0, side, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(shim().memset_async(word, 0, 0, side), CUDA_SUCCESS) << "of no bytes";
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graphs().launch(executable(graph), stream()), CUDA_SUCCESS);
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(word), 7u * kEvery);
  EXPECT_EQ(shim().stream_destroy(side), CUDA_SUCCESS);
}

TEST_F(ShimGraphTest, ABrokenCaptureIsTheProgramsOwnAffair) {
  const CUdeviceptr word = word_of(0);
  EXPECT_EQ(graphs().begin(stream(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  adds(kEvery + 1, word);
  CUdeviceptr memory = 0;
  EXPECT_EQ(shim().alloc(&memory, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  unsigned by = 7;
  CUdeviceptr at = word;
  void* params[] = {&at, &by};
  for (int i = 0; i < 2 * kEvery; ++i) {
    EXPECT_EQ(shim().launch(increment(), 1, 1, 1, 1, 1, 1, 0, stream(), params, nullptr),
              CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  CUgraph none = nullptr;
  EXPECT_EQ(graphs().end(stream(), &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(gates(captured([&] { adds(3 * kEvery, word); })), 2) << "the next one is as the first";
}

// ---- graphs that are held as a whole

TEST_F(ShimGraphTest, BuiltByHandTheyAreCounted) {
  unsigned by = 7;
  CUdeviceptr word = word_of(0);
  void* params[] = {&word, &by};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = increment();
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = params;
  CUgraph graph = nullptr;
  EXPECT_EQ(graphs().create(&graph, 0), CUDA_SUCCESS);
  CUgraphNode last = nullptr;
  for (int i = 0; i < kEvery; ++i)
    EXPECT_EQ(graphs().add_kernel(&last, graph, &last, i == 0 ? 0 : 1, &kernel), CUDA_SUCCESS);
  const std::uint64_t before = whole(Whole::kByHand);
  EXPECT_EQ(graphs().launch(executable(graph), stream()), CUDA_SUCCESS);
  EXPECT_EQ(whole(Whole::kByHand), before) << "not longer than what lies between two gates";
  EXPECT_EQ(graphs().add_kernel(&last, graph, &last, 1, &kernel), CUDA_SUCCESS);
  expect_whole(executable(graph), Whole::kByHand);
}

TEST_F(ShimGraphTest, CapturedIntoAGraphOfTheProgramsTheyGetNone) {
  const CUdeviceptr word = word_of(0);
  CUgraph graph = nullptr, ended = nullptr;
  EXPECT_EQ(graphs().create(&graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(graphs().begin_to_graph(stream(), graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  adds(3 * kEvery, word);
  EXPECT_EQ(graphs().end(stream(), &ended), CUDA_SUCCESS);
  EXPECT_EQ(gates(graph), 0);
  expect_whole(executable(graph), Whole::kIntoGraph);
}

// Programmatic dependent launches: none comes between two of them.
TEST_F(ShimGraphTest, WhereNoGateFitsTheyAreCounted) {
  const CUdeviceptr word = word_of(0);
  const CUgraph graph = captured([&] {
    unsigned by = 7;
    CUdeviceptr at = word;
    void* params[] = {&at, &by};
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream();
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int i = 0; i < 3 * kEvery; ++i)
      EXPECT_EQ(shim().launch_config(&config, increment(), params, nullptr), CUDA_SUCCESS);
  });
  EXPECT_EQ(gates(graph), 0);
  expect_whole(executable(graph), Whole::kRefused);
}

// What the program does next could not be with gates: it goes without, and its own nodes stay.
TEST_F(ShimGraphTest, GatesAreTakenOutWhereTheyAreInTheWay) {
  const CUdeviceptr word = word_of(0);
  CUgraph graph = captured([&] { adds(3 * kEvery, word); });
  CUgraphExec exec = executable(graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
  EXPECT_EQ(gates(graph), 0);
  EXPECT_EQ(edges(graph), 3u * kEvery - 1);
  expect_whole(exec, Whole::kFromDevice);
  EXPECT_EQ(now(word), 21u * kEvery);
  CUgraphExecUpdateResultInfo info = {};
  EXPECT_EQ(graphs().update(exec, captured([&] { adds(3 * kEvery, word); }), &info), CUDA_SUCCESS);
  graph = captured([&] { adds(3 * kEvery + 1, word); });
  EXPECT_EQ(graphs().update(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(gates(graph), 3) << "they were not in the way: it has another kernel";

  CUgraph around = nullptr;
  EXPECT_EQ(graphs().create(&around, 0), CUDA_SUCCESS);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  EXPECT_EQ(graphs().condition(&params.conditional.handle, around, context(), 1, 1), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  EXPECT_EQ(graphs().add_node(&node, around, nullptr, nullptr, 0, &params), CUDA_SUCCESS);
  const CUgraph body = params.conditional.phGraph_out[0];
  const CUgraph first = captured([&] { adds(3 * kEvery, word); }), second = captured([&] { adds(3 * kEvery, word); });
  EXPECT_EQ(graphs().add_child(&node, body, nullptr, 0, first), CUDA_SUCCESS);
  CUgraphNodeParams child = {};
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.graph.graph = second;
  EXPECT_EQ(graphs().add_node(&node, body, nullptr, nullptr, 0, &child), CUDA_SUCCESS);
  expect_whole(executable(around), Whole::kByHand);
  EXPECT_EQ(now(word), 63u * kEvery);
}

TEST_F(ShimGraphTest, ClonesAndChildrenKeepTheirGates) {
  add_other(kAbove);
  const CUdeviceptr word = word_of(0), started = word_of(0);
  CUgraph clone = nullptr, around = nullptr;
  EXPECT_EQ(graphs().clone(&clone, captured([&] {
    adds(1, started);
    park();
    adds(3 * kEvery - 1, word);
  })),
            CUDA_SUCCESS);
  EXPECT_EQ(gates(clone), 3);
  EXPECT_EQ(graphs().create(&around, 0), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  EXPECT_EQ(graphs().add_child(&node, around, nullptr, 0, clone), CUDA_SUCCESS);
  launch_into(executable(around), started);
  freeze();
  finish();
  const unsigned first = 7u * (kEvery - 1);
  EXPECT_TRUE(eventually([&] { return now(word) == first; }));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(now(word), first);
  thaw();
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(now(word), 7u * (3 * kEvery - 1));
}

// The driver refuses both; what the gates wait for was all the while registered where it had been.
TEST_F(ShimGraphTest, AContextThatDoesNotEndKeepsItsGates) {
  const CUdeviceptr word = word_of(0);
  EXPECT_EQ(graphs().context_destroy(context()), CUDA_ERROR_INVALID_CONTEXT) << "a primary one";
  EXPECT_EQ(gates(captured([&] { adds(3 * kEvery, word); })), 2);
  EXPECT_EQ(graphs().primary_release(99), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(gates(captured([&] { adds(3 * kEvery, word); })), 2);
}

TEST_F(ShimGraphTest, ACaptureGoesOnWhenAnotherContextMayHaveEnded) {
  const CUdeviceptr word = word_of(0);
  const std::uint64_t before = self().counters.captured.load();
  const CUgraph graph = captured([&] {
    adds(kEvery, word);
    EXPECT_EQ(graphs().primary_release(99), CUDA_ERROR_INVALID_DEVICE);
    adds(2 * kEvery, word);
  });
  EXPECT_EQ(self().counters.captured.load(), before + 3 * kEvery);
  EXPECT_EQ(gates(graph), 2);
  EXPECT_EQ(count(graph, CU_GRAPH_NODE_TYPE_KERNEL), 3 * kEvery);
}

// What gates wait for was registered in the test's own context: it may outlive another one's graphs, not the reverse.
TEST_F(ShimGraphTest, OnlyTheContextOfTheGateWordHasThem) {
  const CUdeviceptr word = word_of(0);
  CUgraphExec exec = executable(captured([&] { adds(3 * kEvery, word); }));
  CUcontext second = nullptr;
  ASSERT_EQ(graphs().context_create(&second, nullptr, 0, 0), CUDA_SUCCESS);
  CUstream there = nullptr;
  ASSERT_EQ(shim().stream_create(&there, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(graphs().begin(there, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  adds(3 * kEvery, word, there);
  EXPECT_EQ(graphs().end(there, &graph), CUDA_SUCCESS);
  EXPECT_EQ(gates(graph), 0);
  CUevent fork = nullptr, join = nullptr;
  ASSERT_EQ(shim().event_create(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(shim().set_current(context()), CUDA_SUCCESS);
  ASSERT_EQ(shim().event_create(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  graph = captured([&] {
    EXPECT_EQ(shim().event_record(fork, stream()), CUDA_SUCCESS);
    EXPECT_EQ(shim().set_current(second), CUDA_SUCCESS);
    EXPECT_EQ(graphs().event_wait(there, fork, 0), CUDA_SUCCESS);
    adds(3 * kEvery, word, there);
    EXPECT_EQ(shim().event_record(join, there), CUDA_SUCCESS);
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    EXPECT_EQ(graphs().event_wait(stream(), join, 0), CUDA_SUCCESS);
    adds(3 * kEvery, word);
  });
  EXPECT_EQ(gates(graph), 2) << "a branch of another context has none";
  EXPECT_EQ(shim().set_current(second), CUDA_SUCCESS);
  EXPECT_EQ(graphs().context_destroy(second), CUDA_SUCCESS);
  ASSERT_EQ(shim().set_current(context()), CUDA_SUCCESS);
  EXPECT_EQ(graphs().launch(exec, stream()), CUDA_SUCCESS) << "the word is still there";
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(gates(captured([&] { adds(3 * kEvery, word); })), 2);
}

}  // namespace
}  // namespace sluice::shim
