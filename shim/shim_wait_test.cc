// Threads that wait while the job is held: they sleep in the shim, whatever the driver would do.
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <ostream>
#include <thread>

#include "shim_test.h"

namespace sluice::shim {
namespace {

struct Wait {
  const char* name;
  void (*wait)(const ShimTest& test, CUevent event);
};
std::ostream& operator<<(std::ostream& out, const Wait& wait) { return out << wait.name; }

// How often that thread has gone to sleep by itself.
long sleeps_of(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string word; status >> word;) {
    long count = 0;
    if (word == "voluntary_ctxt_switches:" && status >> count) return count;
  }
  return -1;
}

double cpu_seconds_of(pthread_t thread) {
  clockid_t clock = 0;
  timespec used{};
  EXPECT_EQ(pthread_getcpuclockid(thread, &clock), 0);
  EXPECT_EQ(clock_gettime(clock, &used), 0);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

class HeldWaitTest : public ShimTest, public testing::WithParamInterface<Wait> {};

TEST_P(HeldWaitTest, AsksAndSleepsInsteadOfSpinning) {
  add_other(kAbove);
  const CUdeviceptr word = word_of(0);
  CUevent event = nullptr;
  ASSERT_EQ(shim().event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  freeze();
  add_seven(shim().launch, stream(), word);
  ASSERT_EQ(shim().event_record(event, stream()), CUDA_SUCCESS);
  std::atomic<pid_t> id{0};
  std::atomic<bool> may_end{false};
  std::thread program([&] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    id = static_cast<pid_t>(syscall(SYS_gettid));
    GetParam().wait(*this, event);
    EXPECT_TRUE(may_end.load());
  });
  EXPECT_TRUE(eventually([&] { return id.load() != 0; }));
  // Inside the driver's own wait it would sleep once, or spin.
  const long before = sleeps_of(id);
  const std::uint64_t began = now_ns();
  const double cpu_before = cpu_seconds_of(program.native_handle());
  EXPECT_TRUE(eventually([&] { return sleeps_of(id) >= before + 50; }));
  const double cpu = cpu_seconds_of(program.native_handle()) - cpu_before;
  EXPECT_LT(cpu, 0.5e-9 * static_cast<double>(now_ns() - began));
  EXPECT_EQ(now(word), 0u);
  may_end = true;
  thaw();
  program.join();
  EXPECT_EQ(now(word), 7u);
  EXPECT_EQ(shim().event_destroy(event), CUDA_SUCCESS);
}

const Wait kWaits[] = {
    {"Stream", [](const ShimTest& t, CUevent) { EXPECT_EQ(t.shim().synchronize(t.stream()), CUDA_SUCCESS); }},
    {"Context", [](const ShimTest& t, CUevent) { EXPECT_EQ(t.shim().synchronize_context(), CUDA_SUCCESS); }},
    {"Event", [](const ShimTest& t, CUevent event) { EXPECT_EQ(t.shim().event_synchronize(event), CUDA_SUCCESS); }},
    {"CopyToHost",
     [](const ShimTest& t, CUevent) {
       unsigned back = 0;
       EXPECT_EQ(t.shim().copy_to_host(&back, t.word_of(3), sizeof back), CUDA_SUCCESS);
       EXPECT_EQ(back, 3u);
     }},
};
INSTANTIATE_TEST_SUITE_P(Ways, HeldWaitTest, testing::ValuesIn(kWaits),
                         [](const testing::TestParamInfo<Wait>& wait) { return wait.param.name; });

// The driver puts its thread to sleep; asking it would only use more CPU.
TEST_F(ShimTest, AnEventThatBlocksIsLeftToTheDriver) {
  add_other(kAbove);
  CUevent event = nullptr;
  ASSERT_EQ(shim().event_create(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), CUDA_SUCCESS);
  freeze();
  spin(stream(), 1'000);
  ASSERT_EQ(shim().event_record(event, stream()), CUDA_SUCCESS);
  std::atomic<pid_t> id{0};
  std::thread program([&] {
    EXPECT_EQ(shim().set_current(context()), CUDA_SUCCESS);
    id = static_cast<pid_t>(syscall(SYS_gettid));
    EXPECT_EQ(shim().event_synchronize(event), CUDA_SUCCESS);
  });
  EXPECT_TRUE(eventually([&] { return id.load() != 0; }));
  EXPECT_TRUE(eventually([&] {
    const long before = sleeps_of(id);
    sleep_ns(20 * kNanosPerMilli);  // a thread that asks sleeps twenty times meanwhile
    return sleeps_of(id) == before;
  }));
  thaw();
  program.join();
  EXPECT_EQ(shim().event_destroy(event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::shim
