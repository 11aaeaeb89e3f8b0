// Misuse names the stage, and nothing is launched.
#include "graph_test.h"

namespace sluice::graph {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MisuseTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    x_ = floats({1, 2});
    y_ = floats({3, 4});
    p_ = pipeline();
    bx_ = p_->add_buffer("x", x_, 8);
    by_ = p_->add_buffer("y", y_, 8);
  }
  void TearDown() override {
    p_.reset();
    GraphTest::TearDown();
  }
  // A launch fails with this, and left everything as it was.
  void expect_refused(Code code, const char* message) {
    const Status status = p_->launch(stream_);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("stage"), HasSubstr(message)));
    EXPECT_THAT(read(x_, 2), ElementsAre(1, 2));
    EXPECT_EQ(p_->stats().launches, 0U);
  }
  CUdeviceptr x_ = 0, y_ = 0;
  std::unique_ptr<Pipeline> p_;
  Buffer bx_{}, by_{};
};

TEST_F(MisuseTest, NullKernel) {
  p_->add_kernel("good", fill(bx_, 9, 2), {writes(bx_)});
  p_->add_kernel("bad", Kernel{}, {});
  expect_refused(Code::kInvalidArgument, "'bad': its kernel is null");
}
TEST_F(MisuseTest, WritesAConstant) {
  const Buffer constant = p_->add_buffer("c", y_, 8, true);
  p_->add_kernel("good", fill(bx_, 9, 2), {writes(bx_)});
  p_->add_copy("bad", constant, bx_, 8);
  expect_refused(Code::kInvalidArgument, "'bad' writes buffer 'c', which is declared constant");
}
TEST_F(MisuseTest, PassesWhatItDoesNotDeclare) {
  p_->add_kernel("bad", saxpy(2, 1, by_, bx_), {updates(bx_)});
  expect_refused(Code::kInvalidArgument, "'bad' passes buffer 'y' to its kernel but does not declare it");
}
TEST_F(MisuseTest, Overflow) {
  p_->add_kernel("bad", fill({bx_, 4}, 9, 2), {writes(bx_, 4, 8)});
  expect_refused(Code::kInvalidArgument, "'bad' accesses 8 bytes at 4 of buffer 'x', which has 8");
}
TEST_F(MisuseTest, EndsBehindItsMemory) {
  const Buffer long_buffer = p_->add_buffer("l", y_, 1 << 30);
  p_->add_kernel("good", fill(bx_, 9, 2), {writes(bx_)});
  p_->add_memset("bad", long_buffer, 0);
  expect_refused(Code::kInvalidArgument, "'bad' uses buffer 'l', which ends behind its memory");
}
TEST_F(MisuseTest, Cycle) {
  const Stage first = p_->add_kernel("first", fill(bx_, 9, 2), {writes(bx_)});
  const Stage second = p_->add_kernel("second", saxpy(2, 1, bx_, by_), {reads(bx_), updates(by_)});
  p_->after(first, second);
  expect_refused(Code::kFailedPrecondition, "a cycle");
}
TEST_F(MisuseTest, AfterOrdersWhatIsIndependent) {
  const Stage first = p_->add_kernel("first", fill(bx_, 9, 2), {writes(bx_)});
  const Stage second = p_->add_kernel("second", fill(by_, 9, 2), {writes(by_)});
  p_->after(first, second);
  EXPECT_DONE(p_->launch(stream_));
  EXPECT_EQ(p_->stats().edges, 1U);
  Result<std::string> dot = p_->to_dot();
  ASSERT_TRUE(dot.ok());
  EXPECT_THAT(*dot, HasSubstr("s1 -> s0;"));
}
TEST_F(MisuseTest, ReleasedAndFreedBuffers) {
  p_->add_kernel("good", fill(bx_, 9, 2), {writes(bx_)});
  p_->add_kernel("bad", fill(by_, 9, 2), {writes(by_)});
  EXPECT_DONE(p_->release(by_));
  expect_refused(Code::kFailedPrecondition, "'bad' uses buffer 'y', which was freed");
  const CUdeviceptr gone = floats({1, 2});
  ASSERT_EQ(call<CUresult (*)(CUdeviceptr)>("cuMemFree_v2")(gone), CUDA_SUCCESS);
  EXPECT_DONE(p_->set_buffer(by_, gone, 8));
  expect_refused(Code::kFailedPrecondition, "'bad' uses buffer 'y', whose memory was freed");
  EXPECT_DONE(p_->set_buffer(by_, y_, 8));
  EXPECT_DONE(p_->launch(stream_));
}
TEST_F(MisuseTest, AnotherContextsStream) {
  p_->add_kernel("first", fill(bx_, 9, 2), {writes(bx_)});
  CUcontext own = nullptr, other = nullptr;
  ASSERT_EQ(call<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent")(&own), CUDA_SUCCESS);
  ASSERT_EQ((call<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&other, 0, 0)), CUDA_SUCCESS);
  stream_ = make_stream();
  ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(own), CUDA_SUCCESS);
  expect_refused(Code::kInvalidArgument, "'first': the stream is not of the pipeline's context");
  ASSERT_EQ(call<CUresult (*)(CUcontext)>("cuCtxDestroy_v2")(other), CUDA_SUCCESS);
  ASSERT_EQ(call<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(own), CUDA_SUCCESS);
}
TEST_F(MisuseTest, TemporaryReadBeforeItIsWritten) {
  const Buffer t = p_->add_temporary("t", 8);
  p_->add_kernel("good", fill(bx_, 9, 2), {writes(bx_)});
  p_->add_copy("bad", by_, t, 8);
  expect_refused(Code::kInvalidArgument, "'bad' reads temporary 't' before any stage wrote it");
}
TEST_F(MisuseTest, EmptyFunctionAndNoStages) {
  EXPECT_EQ(p_->build().code(), Code::kInvalidArgument);
  p_->add_host("bad", {}, {});
  expect_refused(Code::kInvalidArgument, "'bad': its function is empty");
}

}  // namespace
}  // namespace sluice::graph
