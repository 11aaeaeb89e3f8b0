// Stream capture of the emulated driver: what it forbids, what it tells, several at once.
#include <thread>

#include "graph_test.h"

namespace {

using sluice::emulator::testing::GraphTest;

struct Mistake {
  const char* name;
  CUresult (*make)(CUstream stream, CUstream other, CUdeviceptr word);
  CUresult error;
};
std::ostream& operator<<(std::ostream& out, const Mistake& mistake) { return out << mistake.name; }

const Mistake kMistakes[] = {
    {"Synchronize", [](CUstream s, CUstream, CUdeviceptr) { return cuStreamSynchronize(s); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
    {"Query", [](CUstream s, CUstream, CUdeviceptr) { return cuStreamQuery(s); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
    {"SynchronizeContext", [](CUstream, CUstream, CUdeviceptr) { return cuCtxSynchronize(); },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
    {"Allocate",
     [](CUstream, CUstream, CUdeviceptr) {
       CUdeviceptr at = 0;
       return cuMemAlloc(&at, 4);
     },
     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
    {"WaitForWorkOutside",
     [](CUstream s, CUstream other, CUdeviceptr) {
       CUevent event = nullptr;
       cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
       cuEventRecord(event, other);
       return cuStreamWaitEvent(s, event, 0);
     },
     CUDA_ERROR_STREAM_CAPTURE_ISOLATION},
    {"DestroyTheStream", [](CUstream, CUstream, CUdeviceptr) { return CUDA_SUCCESS; }, CUDA_SUCCESS},
};
class MistakeTest : public GraphTest, public testing::WithParamInterface<Mistake> {};

TEST_P(MistakeTest, BreaksTheCapture) {
  const Mistake& mistake = GetParam();
  EXPECT_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  add(1, stream_);
  if (mistake.error == CUDA_SUCCESS) {
    EXPECT_OK(cuStreamDestroy(stream_));
    EXPECT_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CUgraph none = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream_, &none), CUDA_ERROR_ILLEGAL_STATE);
    return;
  }
  EXPECT_EQ(mistake.make(stream_, other_, words_), mistake.error);
  CUstreamCaptureStatus status;
  EXPECT_OK(cuStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(cuMemsetD32Async(words_, 0, 1, stream_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph none = reinterpret_cast<CUgraph>(this);
  EXPECT_EQ(cuStreamEndCapture(stream_, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(none, nullptr);
  add(1, stream_);
  EXPECT_EQ(word(), 1u) << "and then all is as before";
}
INSTANTIATE_TEST_SUITE_P(Mistakes, MistakeTest, testing::ValuesIn(kMistakes),
                         [](const testing::TestParamInfo<Mistake>& at) { return at.param.name; });

TEST_F(GraphTest, TheDefaultStreamMayNotDependOnACapture) {
  CUstream blocking = nullptr;
  ASSERT_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status;
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_OK(cuStreamIsCapturing(blocking, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "asking breaks nothing";
  EXPECT_EQ(cuMemsetD32Async(words_, 0, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph none = nullptr;
  EXPECT_EQ(cuStreamEndCapture(blocking, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_OK(cuStreamDestroy(blocking));
}

TEST_F(GraphTest, WhatIsForkedMustBeJoined) {
  CUevent fork = nullptr;
  ASSERT_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  EXPECT_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(cuEventRecord(fork, stream_));
  EXPECT_OK(cuStreamWaitEvent(other_, fork, 0));
  add(1, other_);
  CUgraph none = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_, &none), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  add(1, other_);
  EXPECT_OK(cuStreamSynchronize(other_)) << "no longer captured";
  EXPECT_EQ(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
}

// Whether another thread's unsafe call is allowed, by the mode of the capture and by that thread's own.
TEST_F(GraphTest, ModesSayWhomACaptureForbidsWhat) {
  const auto from_another_thread = [&](CUstreamCaptureMode capture, CUstreamCaptureMode thread_mode) {
    CUresult result = CUDA_SUCCESS;
    EXPECT_OK(cuStreamBeginCapture(stream_, capture));
    std::thread([&] {
      EXPECT_OK(cuCtxSetCurrent(context_));
      EXPECT_OK(cuThreadExchangeStreamCaptureMode(&thread_mode));
      CUdeviceptr at = 0;
      result = cuMemAlloc(&at, 4);
      CUgraph none = nullptr;
      if (capture != CU_STREAM_CAPTURE_MODE_RELAXED) {
        EXPECT_EQ(cuStreamEndCapture(stream_, &none), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
      }
    }).join();
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph),
              result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return result;
  };
  const auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const auto kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  const auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(from_another_thread(kGlobal, kGlobal), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_OK(from_another_thread(kGlobal, kLocal));
  EXPECT_OK(from_another_thread(kGlobal, kRelaxed));
  EXPECT_OK(from_another_thread(kLocal, kGlobal));
  EXPECT_OK(from_another_thread(kRelaxed, kGlobal));
  EXPECT_OK(cuStreamBeginCapture(stream_, kLocal));
  CUdeviceptr at = 0;
  EXPECT_EQ(cuMemAlloc(&at, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << "its own thread";
  CUgraph none = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphTest, TheCaptureTellsWhereItIs) {
  EXPECT_OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  add(1, stream_);
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* latest = nullptr;
  const CUgraphEdgeData* edge = nullptr;
  std::size_t count = 0;
  EXPECT_OK(cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &latest, &edge, &count));
  EXPECT_NE(id, 0u);
  ASSERT_EQ(count, 1u);
  CUgraphNodeType type;
  EXPECT_OK(cuGraphNodeGetType(latest[0], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  EXPECT_EQ(cuGraphDestroyNode(latest[0]), CUDA_ERROR_NOT_PERMITTED);
  CUgraphNode first = latest[0], empty = nullptr;
  EXPECT_OK(cuGraphAddEmptyNode(&empty, graph, &first, 1));
  EXPECT_OK(cuStreamUpdateCaptureDependencies(stream_, &empty, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  add(1, stream_);
  CUgraph ended = nullptr;
  EXPECT_OK(cuStreamEndCapture(stream_, &ended));
  EXPECT_EQ(ended, graph);
  EXPECT_EQ(edges(ended), 2u);
  run(ended);
  EXPECT_EQ(word(), 2u);
}

// Threads that capture, update and launch each their own, while others come and go.
TEST_F(GraphTest, ThreadsCaptureAtTheSameTime) {
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < 4; ++index) {
    threads.emplace_back([this, index] {
      EXPECT_OK(cuCtxSetCurrent(context_));
      CUstream own = nullptr;
      EXPECT_OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
      CUgraphExec exec = nullptr;
      for (int round = 0; round < 20; ++round) {
        CUgraph graph = nullptr;
        EXPECT_OK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (int i = 0; i < 5; ++i) add(1, own, index);
        EXPECT_OK(cuStreamEndCapture(own, &graph));
        if (round == 0) {
          EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
        } else {
          CUgraphExecUpdateResult result;
          EXPECT_OK(update(exec, graph, &result));
        }
        EXPECT_OK(cuGraphDestroy(graph));
        EXPECT_OK(cuGraphLaunch(exec, own));
      }
      EXPECT_OK(cuStreamSynchronize(own));
      EXPECT_OK(cuGraphExecDestroy(exec));
      EXPECT_OK(cuStreamDestroy(own));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (unsigned index = 0; index < 4; ++index) EXPECT_EQ(word(index), 100u);
}

}  // namespace
