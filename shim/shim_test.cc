// The shim as a program meets it: opened by name, in front of the emulated driver, on a board made by the test. The test
// plays the other jobs by their words on the board.
#include "shim_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace sluice::shim {
namespace {

TEST_F(ShimTest, AJobAloneIsNotGated) {
  const std::uint64_t before = self().counters.gates.load();
  for (int i = 0; i < 100; ++i) spin(api().explicit_stream, 20'000);
  api().synchronize(api().explicit_stream);
  EXPECT_EQ(self().counters.gates.load(), before);
}

// Gates follow the work between them, not the number of launches.
TEST_F(ShimTest, ALowerJobHasAGateEveryQuantum) {
  add_other(kAbove);
  for (const std::uint64_t ns : {5'000, 20'000, 70'000}) {
    const auto launch = [&](int count) {
      for (int i = 0; i < count; ++i) spin(api().explicit_stream, ns);
      api().synchronize(api().explicit_stream);
    };
    launch(10);
    // Until its cost is known, a kernel counts as some fixed time.
    ASSERT_TRUE(eventually([&] {
      const std::uint64_t before = self().counters.gpu_ns.load();
      launch(1);
      const std::uint64_t cost = self().counters.gpu_ns.load() - before;
      return cost != kUnknownNs && cost >= ns;
    })) << ns;
    const std::uint64_t gates_before = self().counters.gates.load(), ns_before = self().counters.gpu_ns.load();
    const std::uint64_t gated_before = self().counters.gated.load();
    launch(400);
    const std::uint64_t gates = self().counters.gates.load() - gates_before;
    const std::uint64_t quanta = (self().counters.gpu_ns.load() - ns_before) / board::kDefaultQuantumNs;
    // Two pieces that do not fit into one quantum are more than half of one each, on average.
    EXPECT_GE(gates + 1, std::min<std::uint64_t>(quanta, 400)) << ns;
    EXPECT_LE(gates, 2 * quanta + 1) << ns;
    EXPECT_EQ(self().counters.gated.load() - gated_before, 400u);
  }
}

TEST_F(ShimTest, AnEqualJobIsGatedToo) {
  add_other(kOwn);
  const std::uint64_t before = self().counters.gates.load();
  for (int i = 0; i < 100; ++i) spin(api().explicit_stream, 50'000);
  api().synchronize(api().explicit_stream);
  EXPECT_GT(self().counters.gates.load(), before);
}

TEST_F(ShimTest, KernelsLongerThanTheQuantumAreCountedByName) {
  add_other(kAbove);
  ASSERT_TRUE(eventually([&] {
    spin(api().explicit_stream, 300'000);
    api().synchronize(api().explicit_stream);
    return self().counters.long_launches.load() > 0;
  }));
  EXPECT_STREQ(self().long_kernels[0].name, "spin_ns");
  EXPECT_GE(self().long_kernels[0].longest_ns.load(), 300'000u);
  EXPECT_GT(self().long_kernels[0].launches.load(), 0u);
}

// ---- what a closed gate holds

struct Way {
  const char* name;
  // Submits something that makes the word at `device` 7, from 0.
  void (*submit)(ShimTest& test, CUdeviceptr device);
  bool per_thread;
  bool blocks;  // the call returns only when it is done
};

class ClosedGateTest : public ShimTest, public testing::WithParamInterface<Way> {};

TEST_P(ClosedGateTest, HoldsUntilItOpens) {
  add_other(kAbove);
  const Way& way = GetParam();
  const CUdeviceptr word = zeroed_word();
  const std::uint64_t gates = self().counters.gates.load();
  freeze();
  std::atomic<bool> returned{false};
  std::thread program([&] {
    ASSERT_EQ(api().set_current(api().context), CUDA_SUCCESS);
    way.submit(*this, word);
    returned = true;
    if (!way.blocks) {
      ASSERT_EQ(way.per_thread ? api().synchronize_per_thread(nullptr) : api().synchronize_context(), CUDA_SUCCESS);
    }
  });
  EXPECT_TRUE(eventually([&] { return self().counters.gates.load() > gates; })) << "it waits at the gate";
  if (!way.blocks) {
    EXPECT_TRUE(eventually([&] { return returned.load(); })) << "only the GPU waits, not the thread";
  }
  // Work that goes past the shim, and is submitted later, is done before it.
  for (int i = 0; i < 5; ++i) past_the_shim();
  EXPECT_EQ(*host_view(word), 0u);
  if (way.blocks) {
    EXPECT_FALSE(returned.load());
  }
  thaw();
  program.join();
  EXPECT_EQ(*host_view(word), 7u);
}

const Way kWays[] = {
    {"DefaultStream", [](ShimTest& test, CUdeviceptr word) { test.increment(nullptr, word, test.api().launch); }, false,
     false},
    {"PerThreadStream",
     [](ShimTest& test, CUdeviceptr word) { test.increment(nullptr, word, test.api().launch_per_thread); }, true, false},
    {"PerThreadHandle",
     [](ShimTest& test, CUdeviceptr word) { test.increment(CU_STREAM_PER_THREAD, word, test.api().launch); }, true,
     false},
    {"ExplicitStream",
     [](ShimTest& test, CUdeviceptr word) { test.increment(test.api().explicit_stream, word, test.api().launch); },
     false, false},
    {"CooperativeLaunch",
     [](ShimTest& test, CUdeviceptr word) {
       unsigned by = 7;
       void* params[] = {&word, &by};
       EXPECT_EQ(test.api().launch_cooperative(test.api().increment, 1, 1, 1, 1, 1, 1, 0, test.api().explicit_stream,
                                               params),
                 CUDA_SUCCESS);
     },
     false, false},
    {"LaunchWithAttributes",
     [](ShimTest& test, CUdeviceptr word) {
       unsigned by = 7;
       void* params[] = {&word, &by};
       CUlaunchConfig config = {};
       config.gridDimX = config.gridDimY = config.gridDimZ = 1;
       config.blockDimX = config.blockDimY = config.blockDimZ = 1;
       config.hStream = test.api().explicit_stream;
       EXPECT_EQ(test.api().launch_config(&config, test.api().increment, params, nullptr), CUDA_SUCCESS);
     },
     false, false},
    {"CopyToDevice",
     [](ShimTest& test, CUdeviceptr word) {
       static const unsigned seven = 7;
       EXPECT_EQ(test.api().copy_to_device_async(word, &seven, sizeof seven, test.api().explicit_stream), CUDA_SUCCESS);
     },
     false, false},
    {"CopyWithinDevice",
     [](ShimTest& test, CUdeviceptr word) {
       EXPECT_EQ(test.api().copy_within_device_async(word, test.seven(), 4, test.api().explicit_stream), CUDA_SUCCESS);
     },
     false, false},
    {"BlockingCopy",
     [](ShimTest& test, CUdeviceptr word) {
       EXPECT_EQ(test.api().copy_within_device_async(word, test.seven(), 4, nullptr), CUDA_SUCCESS);
       unsigned back = 0;
       EXPECT_EQ(test.api().copy_to_host(&back, word, sizeof back), CUDA_SUCCESS);
       EXPECT_EQ(back, 7u);
     },
     false, true},
    {"Memset",
     [](ShimTest& test, CUdeviceptr word) {
       EXPECT_EQ(test.api().memset_async(word, 7, 1, test.api().explicit_stream), CUDA_SUCCESS);
     },
     false, false},
};
INSTANTIATE_TEST_SUITE_P(Ways, ClosedGateTest, testing::ValuesIn(kWays),
                         [](const testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST_F(ShimTest, EveryClosureIsWaitedForOnce) {
  add_other(kAbove);
  spin(api().explicit_stream, 1'000);
  ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
  for (int closure = 0; closure < 3; ++closure) {
    const std::uint64_t gates = self().counters.gates.load();
    freeze();
    for (int i = 0; i < 3; ++i) past_increment(zeroed_word());
    EXPECT_EQ(self().counters.gates.load(), gates + 1);
    thaw();
    ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
  }
}

// ---- holding others

TEST_F(ShimTest, AHigherJobHoldsThoseBelowWhileItWorks) {
  const int below = add_other(kBelow), equal = add_other(kOwn), above = add_other(kAbove);
  the_board().linger_ns.store(0);
  const std::uint64_t closes = self().counters.closes.load();
  const Parked parked(*this);
  EXPECT_EQ(self().active.load(), 1u);
  EXPECT_EQ(other(below).gate.load(), own_bit());
  EXPECT_EQ(other(equal).gate.load(), 0u);
  EXPECT_EQ(other(above).gate.load(), 0u);
  parked.release();
  ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
  EXPECT_EQ(other(below).gate.load(), 0u) << "opened by the thread that waited, at once";
  EXPECT_EQ(self().active.load(), 0u);
  EXPECT_EQ(self().counters.closes.load(), closes + 1);
}

TEST_F(ShimTest, WorkThatNobodyWaitsForIsSeenToEnd) {
  const int below = add_other(kBelow);
  the_board().linger_ns.store(0);
  const std::uint64_t progress = self().progress.load();
  const Parked parked(*this);
  parked.release();
  EXPECT_TRUE(eventually([&] { return other(below).gate.load() == 0; }));
  EXPECT_GT(self().progress.load(), progress);
}

TEST_F(ShimTest, ANewcomerBelowIsHeldWithoutAnotherLaunch) {
  const Parked parked(*this);
  const int below = add_other(kBelow);
  EXPECT_TRUE(eventually([&] { return other(below).gate.load() == own_bit(); }));
}

TEST_F(ShimTest, ItLingersAndThenLetsGo) {
  const int below = add_other(kBelow);
  the_board().linger_ns.store(3600 * kNanosPerSecond);
  spin(api().explicit_stream, 1'000);
  ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
  EXPECT_EQ(other(below).gate.load(), own_bit()) << "work is done, but more may come";
  the_board().linger_ns.store(1);
  EXPECT_TRUE(eventually([&] { return other(below).gate.load() == 0; })) << "without another call";
}

TEST_F(ShimTest, AChangeOfPriorityIsFollowed) {
  const int first = add_other(kBelow);
  const Parked parked(*this);
  EXPECT_EQ(other(first).gate.load(), own_bit());
  job_of(first).priority.store(kOwn);
  the_board().epoch.fetch_add(1);
  EXPECT_TRUE(eventually([&] { return other(first).gate.load() == 0; }));
  job_of(first).priority.store(kBelow);
  the_board().epoch.fetch_add(1);
  EXPECT_TRUE(eventually([&] { return other(first).gate.load() == own_bit(); }));
}

// ---- being held by what does not work

TEST_F(ShimTest, TheDeadHoldNobody) {
  const int above = add_other(kAbove);
  spin(api().explicit_stream, 1'000);
  ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
  other(above).owner.store(own_identity() + (ProcessIdentity{1} << kPidBits));  // nobody's
  board::close_gate(&the_board(), client_index(), board::closer_bit(above), now_ns());
  EXPECT_TRUE(eventually([&] { return self().gate.load() == 0; }));
}

TEST_F(ShimTest, TheStuckHoldNobodyAndAreCounted) {
  const int above = add_other(kAbove);
  spin(api().explicit_stream, 1'000);
  ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
  other(above).active_ns.store(now_ns());
  other(above).active.store(1);
  board::hold_below(&the_board(), above, now_ns());
  EXPECT_TRUE(eventually([&] { return other(above).counters.stalls.load() == 1; }));
  EXPECT_TRUE(eventually([&] { return self().gate.load() == 0; }));
  EXPECT_FALSE(board::may_hold(&the_board(), above, now_ns()));
}

// ---- processes

TEST_F(ShimTest, AForkedChildPassesThroughAndLeavesItsParentsSlotAlone) {
  add_other(kAbove);
  spin(api().explicit_stream, 1'000);
  const std::uint64_t launches = self().counters.launches.load();
  const pid_t child = fork();
  if (child == 0) {
    spin_unchecked(api().explicit_stream);
    _exit(api().synchronize_context() == CUDA_SUCCESS ? 1 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 5) << "the driver's own refusal";
  EXPECT_EQ(self().counters.launches.load(), launches);
  EXPECT_EQ(self().live.load(), 1u);
  EXPECT_EQ(self().owner.load(), own_identity());
  ASSERT_EQ(api().synchronize(api().explicit_stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::shim
