// Pipelines that run: results, changes in place, kept graphs, and the same on streams.
#include <random>

#include "graph_test.h"

namespace sluice::graph {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LaunchTest : public GraphTest, public ::testing::WithParamInterface<bool> {
 protected:
  Options options() const {
    Options result;
    result.use_graphs = GetParam();
    return result;
  }
};

TEST_P(LaunchTest, AllKindsOfStagesInOrder) {
  const CUdeviceptr x = floats({1, 2, 3, 4}), y = floats({0, 0, 0, 0});
  auto p = pipeline(options());
  const Buffer bx = p->add_buffer("x", x, 16), by = p->add_buffer("y", y, 16);
  const Buffer t = p->add_temporary("t", 16);
  int calls = 0;
  p->add_memset("clear", t, 0);
  p->add_kernel("twice", saxpy(4, 2, bx, t), {reads(bx), updates(t)});
  p->add_code("library",
              [&](CUstream stream, const Addresses& where) {
                const auto set = call<decltype(&cuMemsetD8Async)>("cuMemsetD8Async");
                return set(where.of(by), 0, 16, stream) == CUDA_SUCCESS ? Status()
                                                                        : Status::error(Code::kInternal, "memset");
              },
              {writes(by)});
  p->add_kernel("add", saxpy(4, 1, t, by), {reads(t), updates(by)});
  p->add_host("count", [&calls](const Addresses&) { ++calls; }, {reads(by)});
  p->add_copy("tail", bx, by, 4, 12, 0);
  EXPECT_DONE(p->launch(stream_));
  EXPECT_THAT(read(y, 4), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(read(x, 4), ElementsAre(1, 2, 3, 2));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(p->why().empty(), GetParam()) << p->why();
  EXPECT_EQ(p->stats().instantiations, GetParam() ? 1U : 0U);
}

TEST_P(LaunchTest, RandomPipelinesDoWhatTheirStagesDoOneAfterAnother) {
  std::mt19937 random(11);
  constexpr std::size_t kFloats = 64;
  for (int round = 0; round < 10; ++round) {
    std::vector<float> expected(kFloats);
    for (std::size_t i = 0; i < kFloats; ++i) expected[i] = static_cast<float>(random() % 8);
    const CUdeviceptr at = floats(expected);
    auto p = pipeline(options());
    const Buffer b = p->add_buffer("b", at, kFloats * 4);
    for (int s = 0; s < 60; ++s) {
      const auto n = static_cast<std::uint32_t>(1 + random() % 8);
      const std::size_t x = random() % (kFloats - n), y = random() % (kFloats - n);
      const auto value = static_cast<float>(random() % 5);
      if (x + n > y && y + n > x) {
        p->add_kernel("fill", fill({b, y * 4}, value, n), {writes(b, y * 4, n * 4)});
        std::fill_n(expected.begin() + static_cast<long>(y), n, value);
      } else {
        p->add_kernel("saxpy", saxpy(n, 0.5F, {b, x * 4}, {b, y * 4}),
                      {reads(b, x * 4, n * 4), updates(b, y * 4, n * 4)});
        for (std::size_t i = 0; i < n; ++i) expected[y + i] = 0.5F * expected[x + i] + expected[y + i];
      }
    }
    EXPECT_DONE(p->launch(stream_));
    EXPECT_EQ(read(at, kFloats), expected);
  }
}

TEST_P(LaunchTest, LaunchesOnTwoStreamsDoNotOverlap) {
  const CUdeviceptr y = floats({0});
  auto p = pipeline(options());
  const Buffer by = p->add_buffer("y", y, 4), t = p->add_temporary("t", 4);
  p->add_kernel("one", fill(t, 1, 1), {writes(t)});
  p->add_kernel("add", saxpy(1, 1, t, by), {reads(t), updates(by)});
  const CUstream other = make_stream();
  for (int i = 0; i < 20; ++i) EXPECT_DONE(p->launch(i % 2 == 0 ? stream_ : other));
  EXPECT_THAT(read(y, 1), ElementsAre(20));
}

TEST_P(LaunchTest, ArgumentsAddressesAndSizesChangeInPlace) {
  const CUdeviceptr x = floats({1, 1, 1, 1}), y = floats({0, 0, 0, 0}), z = floats({0, 0, 0, 0, 0, 0, 0, 0});
  auto p = pipeline(options());
  const Buffer bx = p->add_buffer("x", x, 16), by = p->add_buffer("y", y, 16), t = p->add_temporary("t", 8);
  const Stage copy = p->add_copy("copy", t, bx, 8);
  const Stage add = p->add_kernel("add", saxpy(2, 1, t, by), {reads(t), updates(by)});
  EXPECT_DONE(p->launch(stream_));
  EXPECT_THAT(read(y, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_DONE(p->set_kernel(add, saxpy(2, 3, t, by)));
  EXPECT_DONE(p->launch(stream_));
  EXPECT_THAT(read(y, 4), ElementsAre(4, 4, 0, 0));
  EXPECT_DONE(p->set_buffer(by, z, 32));
  EXPECT_DONE(p->resize(t, 16));
  EXPECT_DONE(p->set_copy_bytes(copy, 16));
  EXPECT_DONE(p->set_kernel(add, saxpy(4, 5, t, {by, 16})));
  EXPECT_DONE(p->launch(stream_));
  EXPECT_THAT(read(z, 8), ElementsAre(0, 0, 0, 0, 5, 5, 5, 5));
  EXPECT_THAT(read(y, 4), ElementsAre(4, 4, 0, 0));
  EXPECT_EQ(p->stats().instantiations, GetParam() ? 1U : 0U);
}
INSTANTIATE_TEST_SUITE_P(GraphAndStreams, LaunchTest, ::testing::Bool());

using Pipelines = GraphTest;

TEST_F(Pipelines, OtherDependenciesInstantiateOnceEachWithinTheCap) {
  const CUdeviceptr x = floats({1, 1}), y = floats({0, 0});
  Options options;
  options.kept_graphs = 2;
  auto p = pipeline(options);
  const Buffer bx = p->add_buffer("x", x, 8), by = p->add_buffer("y", y, 8);
  p->add_kernel("first", fill(bx, 2, 1), {writes(bx, 0, 4)});
  const Stage second = p->add_kernel("second", fill({by, 0}, 3, 1), {writes(by, 0, 4), reads(bx, 4, 4)});
  EXPECT_DONE(p->launch(stream_));
  EXPECT_EQ(p->stats().edges, 0U);
  EXPECT_DONE(p->set_accesses(second, {writes(by, 0, 4), reads(bx)}));
  EXPECT_DONE(p->launch(stream_));
  EXPECT_EQ(p->stats().edges, 1U);
  EXPECT_EQ(p->stats().instantiations, 2U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_DONE(p->set_accesses(second, {writes(by, 0, 4)}));
    EXPECT_DONE(p->launch(stream_));
    EXPECT_DONE(p->set_accesses(second, {writes(by, 0, 4), reads(bx)}));
    EXPECT_DONE(p->launch(stream_));
  }
  EXPECT_EQ(p->stats().instantiations, 2U);
  EXPECT_THAT(read(y, 2), ElementsAre(3, 0));
}

TEST_F(Pipelines, CodeThatCannotBeCapturedRunsOnStreamsAndIsNamed) {
  const CUdeviceptr y = floats({7});
  auto p = pipeline();
  const Buffer by = p->add_buffer("y", y, 4);
  p->add_code("waits",
              [&](CUstream stream, const Addresses& where) {
                const CUresult e = call<decltype(&cuStreamSynchronize)>("cuStreamSynchronize")(stream);
                if (e != CUDA_SUCCESS) return Status::error(Code::kInternal, "stage 'waits' synchronises");
                call<decltype(&cuMemsetD8Async)>("cuMemsetD8Async")(where.of(by), 0, 4, stream);
                return Status();
              },
              {writes(by)});
  EXPECT_DONE(p->launch(stream_));
  EXPECT_THAT(p->why(), HasSubstr("'waits'"));
  EXPECT_THAT(read(y, 1), ElementsAre(0));
}

TEST_F(Pipelines, TemporariesShareWhereTheyCannotMeet) {
  const CUdeviceptr y = floats({0});
  auto p = pipeline();
  const Buffer by = p->add_buffer("y", y, 4);
  std::vector<Buffer> t;
  for (int i = 0; i < 6; ++i) t.push_back(p->add_temporary("t" + std::to_string(i), 512));
  p->add_kernel("begin", fill(t[0], 1, 128), {writes(t[0])});
  for (std::size_t i = 1; i < 6; ++i) p->add_copy("copy", t[i], t[i - 1], 512);
  p->add_kernel("end", saxpy(1, 1, t[5], by), {reads(t[5]), updates(by)});
  EXPECT_DONE(p->launch(stream_));
  EXPECT_EQ(p->stats().temporaries_bytes, 6 * 512U);
  EXPECT_EQ(p->stats().temporaries_peak_bytes, 2 * 512U);
  EXPECT_THAT(read(y, 1), ElementsAre(1));
}

TEST_F(Pipelines, TemporariesFromAPoolGoBackToIt) {
  Result<std::unique_ptr<memory::Pool>> pool = memory::Pool::create({4 << 20, false});
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  const CUdeviceptr y = floats({0});
  Options options;
  options.pool = pool->get();
  auto p = pipeline(options);
  const Buffer by = p->add_buffer("y", y, 4), t = p->add_temporary("t", 1 << 20);
  p->add_kernel("one", fill(t, 1, 1), {writes(t)});
  p->add_kernel("add", saxpy(1, 1, t, by), {reads(t), updates(by)});
  EXPECT_DONE(p->launch(stream_));
  EXPECT_GE((*pool)->stats().active_bytes, 1U << 20);
  EXPECT_THAT(read(y, 1), ElementsAre(1));
  p.reset();
  EXPECT_EQ((*pool)->stats().active_bytes, 0U);
}

TEST_F(Pipelines, DotAndMeasure) {
  const CUdeviceptr y = floats({0});
  auto p = pipeline();
  const Buffer by = p->add_buffer("y", y, 4);
  p->add_kernel("a \"b\"", fill(by, 1, 1), {writes(by)});
  p->add_kernel("c", saxpy(1, 1, by, by), {updates(by)});
  Result<std::string> dot = p->to_dot();
  ASSERT_TRUE(dot.ok());
  EXPECT_THAT(*dot, HasSubstr("s0 [label=\"a \\\"b\\\"\""));
  EXPECT_THAT(*dot, HasSubstr("s0 -> s1;"));
  Result<Measured> measured = p->measure(stream_, 3);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_GT(measured->graph_us, 0);
  EXPECT_GT(measured->build_us, 0);
  EXPECT_THAT(read(y, 1), ElementsAre(2));
}

}  // namespace
}  // namespace sluice::graph
