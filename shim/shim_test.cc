// The shim as a program meets it: opened by name, in front of the emulated driver, on a board made by the test. The
// test plays the other jobs by their words on the board.
#include "shim_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <thread>

#include "costs.h"

namespace sluice::shim {
namespace {

TEST_F(ShimTest, AJobAloneIsNotGated) {
  const std::uint64_t before = self().counters.gates.load();
  for (int i = 0; i < 100; ++i) spin(stream(), 20'000);
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(self().counters.gates.load(), before);
}

TEST_F(ShimTest, AnEqualJobIsGated) {
  add_other(kOwn);
  const std::uint64_t before = self().counters.gates.load();
  for (int i = 0; i < 100; ++i) spin(stream(), 20'000);
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_GT(self().counters.gates.load(), before);
}

class SpacingTest : public ShimTest, public testing::WithParamInterface<int> {};

// As many kernels go between two gates as fit into a quantum, by what they were measured to take.
TEST_P(SpacingTest, FollowsTheQuantum) {
  constexpr std::uint64_t kLaunches = 200;
  const std::uint64_t asked = static_cast<std::uint64_t>(GetParam());
  const unsigned blocks = static_cast<unsigned>(asked / 5'000) + 1;
  add_other(kAbove);
  board::Counters& counters = self().counters;
  bool measured = false;
  ASSERT_TRUE(eventually([&] {
    const auto launch = [&](std::uint64_t count) {
      const std::uint64_t before = counters.gpu_ns.load();
      for (std::uint64_t i = 0; i < count; ++i) spin(stream(), asked, blocks);
      return counters.gpu_ns.load() - before;
    };
    const std::uint64_t cost = launch(1);
    EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    if (cost == kUnknownNs) return false;
    const std::uint64_t gates_before = counters.gates.load(), gated_before = counters.gated.load();
    const std::uint64_t total = launch(kLaunches);
    EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    if (total != kLaunches * cost) return false;  // a new measurement came in between
    measured = true;
    EXPECT_GE(cost + asked / 100, asked);  // the driver's milliseconds are rounded
    const std::uint64_t between = std::max<std::uint64_t>(board::kDefaultQuantumNs / cost, 1);
    const std::uint64_t gates = counters.gates.load() - gates_before, expected = kLaunches / between;
    EXPECT_TRUE(gates + 1 >= expected && gates <= expected + 1)
        << gates << ", not " << expected << ", for kernels of " << cost << " ns";
    EXPECT_EQ(counters.gated.load() - gated_before, kLaunches);
    return true;
  })) << "never twice the same cost";
  EXPECT_TRUE(measured);
}
INSTANTIATE_TEST_SUITE_P(Ns, SpacingTest, testing::Values(5'000, 20'000, 70'000, 150'000),
                         testing::PrintToStringParamName());

TEST_F(ShimTest, KernelsLongerThanTheQuantumAreCountedByName) {
  add_other(kAbove);
  ASSERT_TRUE(eventually([&] {
    spin(stream(), 300'000);
    EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    return self().counters.long_launches.load() > 0;
  }));
  EXPECT_STREQ(self().long_kernels[0].name, "spin_ns");
  EXPECT_GT(self().long_kernels[0].longest_ns.load(), board::kDefaultQuantumNs);
  EXPECT_GT(self().long_kernels[0].launches.load(), 0u);
}

TEST_F(ShimTest, TimeOffTheGpuIsNotTakenForTheKernels) {
  constexpr std::uint64_t kShort = 100'000, kLong = 5'000'000;
  constexpr unsigned kBlocks = 97;  // a kernel of this test's own
  board::Counters& counters = self().counters;
  const auto launch = [&](std::uint64_t ns, bool is_off) {
    const std::uint64_t before = counters.gpu_ns.load();
    spin(stream(), ns, kBlocks);
    const std::uint64_t cost = counters.gpu_ns.load() - before;
    if (is_off) counters.preempted.fetch_add(1);
    EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    return cost;
  };
  ASSERT_TRUE(eventually([&] {
    const std::uint64_t cost = launch(kShort, false);
    return cost >= kShort && cost < kLong / 16;
  }));
  for (int i = 0; i < 64; ++i) launch(kLong, true);
  EXPECT_LT(launch(kShort, false), kLong / 16);
  EXPECT_TRUE(eventually([&] { return launch(kLong, false) > kLong / 16; })) << "but a longer kernel is";
}

// ---- what a closed gate holds

struct Way {
  const char* name;
  // Submits something that makes the word 7, from 0.
  void (*submit)(const ShimTest& test, CUdeviceptr word);
  bool blocks = false;      // the call returns only when it is done
  bool per_thread = false;  // on the calling thread's default stream
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

class ClosedGateTest : public ShimTest, public testing::WithParamInterface<Way> {};

TEST_P(ClosedGateTest, HoldsUntilItOpens) {
  add_other(kAbove);
  const Way& way = GetParam();
  const CUdeviceptr word = word_of(0);
  const std::uint64_t gates = self().counters.gates.load();
  freeze();
  std::atomic<bool> returned{false};
  std::thread program([&] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    way.submit(*this, word);
    returned = true;
    EXPECT_EQ(way.per_thread ? shim().synchronize_per_thread(nullptr) : shim().synchronize_context(), CUDA_SUCCESS);
  });
  EXPECT_TRUE(eventually([&] { return self().counters.gates.load() > gates; })) << "the GPU waits at the gate";
  if (!way.blocks) {
    EXPECT_TRUE(eventually([&] { return returned.load(); })) << "but the thread does not";
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(now(word), 0u) << "though the GPU does other work";
  if (way.blocks) {
    EXPECT_FALSE(returned.load());
  }
  thaw();
  program.join();
  EXPECT_EQ(now(word), 7u);
}

const Way kWays[] = {
    {"DefaultStream", [](const ShimTest& t, CUdeviceptr word) { t.add_seven(t.shim().launch, nullptr, word); }},
    {"PerThreadStream",
     [](const ShimTest& t, CUdeviceptr word) { t.add_seven(t.shim().launch_per_thread, nullptr, word); }, false, true},
    {"PerThreadHandle",
     [](const ShimTest& t, CUdeviceptr word) { t.add_seven(t.shim().launch, CU_STREAM_PER_THREAD, word); }, false,
     true},
    {"ExplicitStream", [](const ShimTest& t, CUdeviceptr word) { t.add_seven(t.shim().launch, t.stream(), word); }},
    {"CooperativeLaunch",
     [](const ShimTest& t, CUdeviceptr word) {
       unsigned by = 7;
       void* params[] = {&word, &by};
       EXPECT_EQ(t.shim().launch_cooperative(t.increment(), 1, 1, 1, 1, 1, 1, 0, t.stream(), params), CUDA_SUCCESS);
     }},
    {"LaunchByConfiguration",
     [](const ShimTest& t, CUdeviceptr word) {
       unsigned by = 7;
       void* params[] = {&word, &by};
       CUlaunchConfig config = {};
       config.gridDimX = config.gridDimY = config.gridDimZ = 1;
       config.blockDimX = config.blockDimY = config.blockDimZ = 1;
       config.hStream = t.stream();
       EXPECT_EQ(t.shim().launch_config(&config, t.increment(), params, nullptr), CUDA_SUCCESS);
     }},
    {"CopyToDevice",
     [](const ShimTest& t, CUdeviceptr word) {
       static const unsigned kSeven = 7;
       EXPECT_EQ(t.shim().copy_to_device_async(word, &kSeven, sizeof kSeven, t.stream()), CUDA_SUCCESS);
     }},
    {"CopyWithinDevice",
     [](const ShimTest& t, CUdeviceptr word) {
       EXPECT_EQ(t.shim().copy_within_device_async(word, t.word_of(7), sizeof(unsigned), t.stream()), CUDA_SUCCESS);
     }},
    {"Memset", [](const ShimTest& t,
                  CUdeviceptr word) { EXPECT_EQ(t.shim().memset_async(word, 7, 1, t.stream()), CUDA_SUCCESS); }},
    {"BlockingCopy",
     [](const ShimTest& t, CUdeviceptr word) {
       unsigned back = 0;
       EXPECT_EQ(t.shim().memset_async(word, 7, 1, nullptr), CUDA_SUCCESS);
       EXPECT_EQ(t.shim().copy_to_host(&back, word, sizeof back), CUDA_SUCCESS);
       EXPECT_EQ(back, 7u);
     },
     true},
};
INSTANTIATE_TEST_SUITE_P(Ways, ClosedGateTest, testing::ValuesIn(kWays),
                         [](const testing::TestParamInfo<Way>& way) { return way.param.name; });

TEST_F(ShimTest, EachClosureIsWaitedForOnce) {
  add_other(kAbove);
  set_quantum(3600 * kNanosPerSecond);  // spacing alone would ask for none
  for (int closure = 0; closure < 3; ++closure) {
    const CUdeviceptr word = word_of(0);
    const std::uint64_t gates = self().counters.gates.load();
    freeze();
    for (int i = 0; i < 3; ++i) add_seven(shim().launch, stream(), word);
    EXPECT_EQ(self().counters.gates.load(), gates + 1);
    EXPECT_EQ(now(word), 0u);
    thaw();
    ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    EXPECT_EQ(now(word), 21u);
  }
}

// ---- holding others

TEST_F(ShimTest, AHigherJobHoldsThoseBelowWhileItWorks) {
  const int below = add_other(kBelow), equal = add_other(kOwn), above = add_other(kAbove);
  the_board().linger_ns.store(0);
  const std::uint64_t closes = self().counters.closes.load();
  begin_work();
  EXPECT_EQ(self().active.load(), 1u);
  EXPECT_EQ(other(below).gate.load(), own_bit());
  EXPECT_EQ(other(equal).gate.load(), 0u);
  EXPECT_EQ(other(above).gate.load(), 0u);
  finish();
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(other(below).gate.load(), 0u) << "opened by the thread that waited, at once";
  EXPECT_EQ(self().active.load(), 0u);
  EXPECT_EQ(self().counters.closes.load(), closes + 1);
}

// Its mark is the word that the GPU writes for it, allocated once.
TEST_F(ShimTest, ABurstThatBeginsWithACopyTakesTheGpuOver) {
  const CUdeviceptr word = word_of(0);
  const auto free_after_burst = [&](bool begins_with_a_kernel) {
    static const unsigned kSeven = 7;
    if (begins_with_a_kernel) spin(stream(), 1'000);
    EXPECT_EQ(shim().copy_to_device_async(word, &kSeven, sizeof kSeven, stream()), CUDA_SUCCESS);
    EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
    EXPECT_EQ(self().active.load(), 0u);
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver().mem_info(&free, &total), CUDA_SUCCESS);
    return free;
  };
  the_board().linger_ns.store(0);
  const std::size_t before = free_after_burst(false);
  add_other(kAbove);
  EXPECT_EQ(free_after_burst(false), before) << "there is nobody below to take it from";
  add_other(kBelow);
  EXPECT_EQ(free_after_burst(true), before) << "the kernel does it";
  freeze();
  static const unsigned kSix = 6;
  EXPECT_EQ(shim().copy_to_device_async(word, &kSix, sizeof kSix, stream()), CUDA_SUCCESS);
  thaw();
  EXPECT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  std::size_t free = 0, total = 0;
  EXPECT_EQ(driver().mem_info(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, before) << "a job above has it";
  const std::size_t after = free_after_burst(false);
  EXPECT_LT(after, before);
  EXPECT_EQ(free_after_burst(false), after) << "the same word again";
  EXPECT_EQ(now(word), 7u);
}

TEST_F(ShimTest, WorkThatNobodyWaitsForIsSeenToEnd) {
  const int below = add_other(kBelow);
  the_board().linger_ns.store(0);
  const std::uint64_t progress = self().progress.load();
  begin_work();
  finish();
  EXPECT_TRUE(eventually([&] { return other(below).gate.load() == 0; }));
  EXPECT_GT(self().progress.load(), progress);
}

// In the middle of their work, too: what was submitted to a stream that is gone counts as done.
TEST_F(ShimTest, StreamsComeAndGo) {
  const int below = add_other(kBelow);
  the_board().linger_ns.store(0);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this] {
      EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
      for (int i = 0; i < 100; ++i) {
        CUstream short_lived = nullptr;
        EXPECT_EQ(shim().stream_create(&short_lived, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        for (int n = 0; n < 3; ++n) spin(short_lived, 20'000);
        if (i % 2 == 0) {
          EXPECT_EQ(shim().synchronize(short_lived), CUDA_SUCCESS);
        }
        EXPECT_EQ(shim().stream_destroy(short_lived), CUDA_SUCCESS);
      }
    });
  }
  std::atomic<bool> over{false};
  std::thread waiter([&] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    while (!over.load()) EXPECT_EQ(shim().synchronize_context(), CUDA_SUCCESS);
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  waiter.join();
  EXPECT_TRUE(eventually([&] { return self().active.load() == 0 && other(below).gate.load() == 0; }));
}

TEST_F(ShimTest, ANewcomerBelowIsHeldWithoutAnotherLaunch) {
  begin_work();
  const int below = add_other(kBelow);
  EXPECT_TRUE(eventually([&] { return other(below).gate.load() == own_bit(); }));
}

TEST_F(ShimTest, ItLingersAndThenLetsGo) {
  const int below = add_other(kBelow);
  the_board().linger_ns.store(3600 * kNanosPerSecond);
  spin(stream(), 1'000);
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  EXPECT_EQ(other(below).gate.load(), own_bit()) << "work is done, but more may come";
  the_board().linger_ns.store(1);
  EXPECT_TRUE(eventually([&] { return other(below).gate.load() == 0; })) << "without another call";
}

TEST_F(ShimTest, AChangeOfPriorityIsFollowed) {
  const int first = add_other(kBelow);
  begin_work();
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
  spin(stream(), 1'000);
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
  other(above).owner.store(own_identity() + (ProcessIdentity{1} << kPidBits));  // nobody's
  board::close_gate(&the_board(), client(), board::closer_bit(above), now_ns());
  EXPECT_TRUE(eventually([&] { return self().gate.load() == 0; }));
}

TEST_F(ShimTest, TheStuckHoldNobodyAndAreCounted) {
  const int above = add_other(kAbove);
  spin(stream(), 1'000);
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
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
  spin(stream(), 1'000);
  const std::uint64_t launches = self().counters.launches.load();
  const pid_t child = fork();
  if (child == 0) {
    std::uint64_t ns = 1'000;
    void* params[] = {&ns};
    const CUresult launched = shim().launch(increment(), 1, 1, 1, 32, 1, 1, 0, stream(), params, nullptr);
    _exit(launched == CUDA_SUCCESS || shim().synchronize_context() == CUDA_SUCCESS ? 1 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 5) << "the driver's own refusal";
  EXPECT_EQ(self().counters.launches.load(), launches);
  EXPECT_EQ(self().live.load(), 1u);
  EXPECT_EQ(self().owner.load(), own_identity());
  ASSERT_EQ(shim().synchronize(stream()), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::shim
