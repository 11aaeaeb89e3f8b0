// Time slices and channels of a job with long kernels, with the kernel module played by the test.
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <vector>

#include "rm_abi.h"
#include "shim_test.h"

namespace sluice::shim {
namespace {

constexpr int kModule = 12345;  // the file descriptor of its device
constexpr std::uint64_t kDriverSliceUs = 2048, kLong = 1'400'000;

// What the kernel module knows of this process.
struct Module {
  std::mutex mutex;
  std::map<rm::Handle, std::uint64_t> slices;  // of channel groups
  std::map<rm::Handle, bool> enabled;          // channels
  std::vector<rm::Handle> freed_while_disabled;
  bool refuses = false;
  bool stops_midway = false;  // refuses to disable when it has disabled one
  int stops = 0;
  std::atomic<bool> hangs{false}, is_hanging{false};
  bool says_enabled = false;

  std::uint32_t control(rm::Control& call) {
    void* parameters = reinterpret_cast<void*>(call.parameters);
    if (call.command == rm::kSetTimeSlice) {
      slices[call.object] = static_cast<rm::TimeSlice*>(parameters)->us;
    } else if (call.command == rm::kGetTimeSlice) {
      static_cast<rm::TimeSlice*>(parameters)->us = slices[call.object];
    } else if (call.command == rm::kFifoDisableChannels) {
      const auto& disable = *static_cast<rm::DisableChannels*>(parameters);
      if (refuses || call.bytes != sizeof disable) return 0x1b;  // NV_ERR_INSUFFICIENT_PERMISSIONS
      for (std::uint32_t i = 0; i < disable.count; ++i) {
        if (enabled.count(disable.channels[i]) == 0) return 0x57;  // NV_ERR_OBJECT_NOT_FOUND
        enabled[disable.channels[i]] = disable.disable == 0;
        if (stops_midway && disable.disable != 0) {
          ++stops;
          return 0x1b;
        }
      }
      if (says_enabled && disable.disable == 0) std::fprintf(stderr, "enabled again\n");
    }
    return 0;
  }

  int call(unsigned number, unsigned bytes, void* argument) {
    if (hangs.load() && number == rm::kControl) {
      is_hanging.store(true);
      while (true) pause();
    }
    std::lock_guard guard(mutex);
    if (number == rm::kControl) {
      auto& control_call = *static_cast<rm::Control*>(argument);
      control_call.status = control(control_call);
    } else if (number == rm::kAlloc) {
      auto& alloc = *static_cast<rm::Alloc*>(argument);
      if (rm::is_channel(alloc.object_class)) enabled[alloc.object] = true;
      if (alloc.object_class == rm::kChannelGroup) slices[alloc.object] = 1024;
      (bytes == sizeof(rm::Alloc) ? alloc.status : static_cast<rm::AllocOld*>(argument)->status) = 0;
    } else if (number == rm::kFree) {
      auto& free = *static_cast<rm::Free*>(argument);
      for (const auto& [channel, is_enabled] : enabled) {
        if (!is_enabled) freed_while_disabled.push_back(channel);
      }
      free.status = 0;
    }
    return 0;
  }

  std::uint64_t slice(rm::Handle group) {
    std::lock_guard guard(mutex);
    return slices[group];
  }
  int times_stopped() {
    std::lock_guard guard(mutex);
    return stops;
  }
  bool runs(rm::Handle channel) {
    std::lock_guard guard(mutex);
    return enabled[channel];
  }
  void set(bool Module::*flag, bool value) {
    std::lock_guard guard(mutex);
    this->*flag = value;
  }
};
Module& module = *new Module;  // used while the process exits

constexpr rm::Handle kRoot = 1, kDevice = 2, kSubdevice = 3, kCompute = 0x10, kCopies = 0x20;

// A context as NVIDIA's library makes it: groups for kernels and for copies, a few channels each.
class PreemptTest : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    void* driver = dlopen(SLUICE_EMULATOR, RTLD_NOW | RTLD_LOCAL);
    *reinterpret_cast<void**>(&ioctl_of_driver_) = dlsym(driver, "sluice_test_ioctl");
    ASSERT_NE(ioctl_of_driver_, nullptr);
    above_ = add_other(kAbove);
    self().tail_ns.store(kLong);
  }
  void TearDown() override {
    release();
    self().tail_ns.store(0);
    free_object(kRoot, 0);
    ShimTest::TearDown();
  }

  template <class AllocStruct = rm::Alloc>
  void allocate(rm::Handle parent, rm::Handle object, std::uint32_t object_class, std::uint32_t engine = 0) {
    rm::ChannelGroupAlloc group{0, 0, 0, engine};
    AllocStruct call{};
    call.root = kRoot;
    call.parent = parent;
    call.object = object;
    call.object_class = object_class;
    call.parameters = reinterpret_cast<std::uintptr_t>(&group);
    ASSERT_EQ(ioctl_of_driver_(kModule, rm::request(rm::kAlloc, sizeof call), &call), 0);
  }
  template <class AllocStruct = rm::Alloc>
  void make_context() {
    allocate<AllocStruct>(kDevice, kSubdevice, rm::kSubdevice);
    allocate<AllocStruct>(kDevice, kCompute, rm::kChannelGroup, 1);
    for (rm::Handle i = 1; i <= 3; ++i) allocate<AllocStruct>(kCompute, kCompute + i, 0xc86f);
    allocate<AllocStruct>(kDevice, kCopies, rm::kChannelGroup, 9);
    for (rm::Handle i = 1; i <= 2; ++i) allocate<AllocStruct>(kCopies, kCopies + i, 0xc86f);
    rm::TimeSlice slice{kDriverSliceUs};
    rm::Control call{kRoot, kCompute, rm::kSetTimeSlice, 0, reinterpret_cast<std::uintptr_t>(&slice), sizeof slice, 0};
    ASSERT_EQ(ioctl_of_driver_(kModule, rm::request(rm::kControl, sizeof call), &call), 0);
  }
  void free_object(rm::Handle object, rm::Handle parent) {
    rm::Free call{kRoot, parent, object, 0};
    ASSERT_EQ(ioctl_of_driver_(kModule, rm::request(rm::kFree, sizeof call), &call), 0);
  }

  // Holds it again whenever it finds itself let go, as the shim of a busy job does.
  bool held_until(const std::function<bool()>& happened) {
    return eventually([&] {
      other(above_).progress.fetch_add(1);
      other(above_).progress_ns.store(now_ns());
      board::close_gate(&the_board(), client(), board::closer_bit(above_), now_ns());
      return happened();
    });
  }
  void hold() {
    ASSERT_TRUE(held_until([] { return !module.runs(kCompute + 1); }));
  }
  void release() { board::open_gate(&the_board(), client(), board::closer_bit(above_), now_ns()); }
  bool comes_back() {
    return eventually(
        [] { return module.runs(kCompute + 1) && module.runs(kCompute + 2) && module.runs(kCompute + 3); });
  }

  int (*ioctl_of_driver_)(int, unsigned long, void*) = nullptr;
  int above_ = -1;
};

TEST_F(PreemptTest, TimeSlicesAreShortWhileKernelsAreLongAndSomebodyIsAbove) {
  make_context();
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == 50; }));
  EXPECT_EQ(module.slice(kCopies), 1024u) << "copies are not what is waited for";
  self().tail_ns.store(100'000);
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == kDriverSliceUs; }));
  self().tail_ns.store(kLong);
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == 50; }));
  job_of(above_).priority.store(kBelow);
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == kDriverSliceUs; }));
}

TEST_F(PreemptTest, AMinimumShareIsNotTakenAwayByShortSlices) {
  make_context();
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == 50; }));
  job_of(above_).min_below_permille.store(100);
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == kDriverSliceUs; }));
}

TEST_F(PreemptTest, WhatTheDriverSetsLaterIsShortenedToo) {
  make_context();
  EXPECT_TRUE(eventually([] { return module.slice(kCompute) == 50; }));
  free_object(kCompute, kDevice);
  make_context();
  EXPECT_EQ(module.slice(kCompute), 50u);
}

TEST_F(PreemptTest, HeldItIsOffTheGpuAndComesBack) {
  make_context();
  const std::uint64_t before = self().counters.preempted.load();
  hold();
  EXPECT_FALSE(module.runs(kCompute + 2));
  EXPECT_FALSE(module.runs(kCompute + 3));
  EXPECT_TRUE(module.runs(kCopies + 1));
  EXPECT_GT(self().counters.preempted.load(), before);
  release();
  EXPECT_TRUE(comes_back());
}

TEST_F(PreemptTest, ContextsOfOldLibrariesAreKnownToo) {
  make_context<rm::AllocOld>();
  hold();
  release();
  EXPECT_TRUE(comes_back());
}

TEST_F(PreemptTest, AHolderThatIsStuckLeavesItOnTheGpu) {
  make_context();
  hold();
  EXPECT_TRUE(comes_back()) << "nobody opened the gate but the pump, which found no progress";
}

TEST_F(PreemptTest, WhatIsOffComesBackBeforeItIsFreed) {
  make_context();
  hold();
  free_object(kCompute + 2, kCompute);
  std::lock_guard guard(module.mutex);
  EXPECT_TRUE(module.freed_while_disabled.empty());
}

TEST_F(PreemptTest, WhereTheModuleRefusesThereAreStillGates) {
  module.set(&Module::refuses, true);
  make_context();
  const std::uint64_t before = self().counters.preempted.load();
  EXPECT_TRUE(held_until([&] { return self().watched.load() != 0 && self().gate.load() != 0; }));
  EXPECT_TRUE(module.runs(kCompute + 1));
  EXPECT_EQ(self().counters.preempted.load(), before);
  module.set(&Module::refuses, false);
}

TEST_F(PreemptTest, WhatWasDisabledBeforeARefusalRunsAgain) {
  module.set(&Module::stops_midway, true);
  make_context();
  EXPECT_TRUE(held_until([] { return module.times_stopped() > 0; }));
  release();
  EXPECT_TRUE(comes_back());
  module.set(&Module::stops_midway, false);
}

TEST_F(PreemptTest, AGroupThatGetsTooManyChannelsWhileItIsOffComesBack) {
  make_context();
  hold();
  for (rm::Handle i = 4; i <= rm::kMostChannels + 1; ++i) allocate(kCompute, 0x1000 + i, 0xc86f);
  release();
  EXPECT_TRUE(comes_back());
}

TEST_F(PreemptTest, AGroupWhoseSubdeviceGoesWhileItIsOffComesBack) {
  make_context();
  hold();
  free_object(kSubdevice, kDevice);
  release();
  EXPECT_TRUE(comes_back());
}

using PreemptDeathTest = PreemptTest;

TEST_F(PreemptDeathTest, AProcessThatExitsWhileItIsOffEndsOnTheGpu) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        make_context();
        hold();
        module.says_enabled = true;
        std::exit(0);
      },
      testing::ExitedWithCode(0), "enabled again");
}

TEST_F(PreemptDeathTest, AProcessEndsThoughACallToTheModuleDoesNot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        make_context();
        module.hangs.store(true);
        held_until([] { return module.is_hanging.load(); });
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice::shim

// What the test's libraries call: the module is played here, the rest is the kernel's.
extern "C" [[gnu::visibility("default")]] int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  namespace rm = sluice::shim::rm;
  if (fd == sluice::shim::kModule && _IOC_TYPE(request) == rm::kMagic)
    return sluice::shim::module.call(_IOC_NR(request), _IOC_SIZE(request), argument);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}
