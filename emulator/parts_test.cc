// The emulator's parts: profiles, PTX, kernels, and the rules by which contexts get the SMs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "embedded.h"
#include "kernels.h"
#include "machine.h"
#include "profile.h"
#include "ptx.h"

namespace sluice::emulator {
namespace {

TEST(Profile, BuiltInOnesAreWhole) {
  ASSERT_GE(kEmbeddedProfileCount, 2);
  for (int i = 0; i < kEmbeddedProfileCount; ++i) {
    const Result<Profile> profile = parse_profile(kEmbeddedProfiles[i].text, kEmbeddedProfiles[i].key);
    EXPECT_TRUE(profile.ok()) << profile.status().message();
  }
}

TEST(Profile, ErrorsNameTheLine) {
  EXPECT_THAT(parse_profile("sm_count = 3\nsm_count = 4\n", "x.toml").status().message(),
              testing::HasSubstr("x.toml:2"));
  EXPECT_THAT(parse_profile("# fine\nnonsense\n", "x.toml").status().message(), testing::HasSubstr("x.toml:2"));
  EXPECT_THAT(parse_profile("sm_count = many\n", "x.toml").status().message(), testing::HasSubstr("'many'"));
  EXPECT_THAT(parse_profile("sm_count = 3\n", "x.toml").status().message(), testing::HasSubstr("is missing"));
}

TEST(Profile, UuidsDifferAndStay) {
  Settings settings;
  settings.profile.name = "some card";
  EXPECT_EQ(device_uuid_text(settings, 0), device_uuid_text(settings, 0));
  EXPECT_NE(device_uuid_text(settings, 0), device_uuid_text(settings, 1));
  EXPECT_THAT(device_uuid_text(settings, 0),
              testing::MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(device_uuid_text(settings, 0).size(), 40u);
}

TEST(Ptx, ParametersAreLaidOut) {
  const Result<std::vector<PtxEntry>> entries = parse_ptx(R"(
    .version 6.4 // .entry not_this(.param .u8 x)
    /* .entry nor_this() {} */
    .extern .func  (.param .b32 out) vprintf(.param .b64 a);
    .visible .entry one(
      .param .u8 a,
      .param .u64 .ptr .global .align 16 b,
      .param .align 8 .b8 c[12],
      .param .f32 d
    )
    .maxntid 256, 1, 1
    { { ret; } }
    .entry two { ret; }
    .visible .entry three() { ret; })");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 3u);
  const PtxEntry& one = (*entries)[0];
  EXPECT_EQ(one.name, "one");
  ASSERT_EQ(one.params.size(), 4u);
  EXPECT_EQ(one.params[1].offset, 8u);
  EXPECT_EQ(one.params[2].offset, 16u);
  EXPECT_EQ(one.params[2].bytes, 12u);
  EXPECT_EQ(one.params[3].offset, 28u);
  EXPECT_EQ(one.param_bytes, 32u);
  EXPECT_EQ((*entries)[1].name, "two");
  EXPECT_TRUE((*entries)[2].params.empty());
}

TEST(Ptx, DamagedTextIsRefused) {
  EXPECT_FALSE(parse_ptx(".entry").ok());
  EXPECT_FALSE(parse_ptx(".entry f(").ok());
  EXPECT_FALSE(parse_ptx(".entry f(.param").ok());
  EXPECT_FALSE(parse_ptx(".entry f(.param .u32 x[0]) {}").ok());
  EXPECT_FALSE(parse_ptx(".entry f(.param .q32 x) {}").ok());
  EXPECT_FALSE(parse_ptx(".entry f() { ").ok());
  EXPECT_FALSE(parse_ptx("}").ok());
  EXPECT_TRUE(looks_like_ptx("\n// hello\n/* a */ .version 6.4"));
  EXPECT_FALSE(
      looks_like_ptx("\x7f"
                     "ELF"));
  EXPECT_FALSE(looks_like_ptx("/* never closed"));
}

// ---- the SMs: times are chosen, nothing waits -----------------------------------------------------------------

constexpr std::uint64_t kSlice = 2'000'000, kSwitch = 10'000;
constexpr std::uint64_t kBase = 1'000'000'000'000;

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    for (int i = 0; i < 3; ++i) {
      const int slot = claim_slot(*device_);
      device_->slots[slot].beat_ns.store(~std::uint64_t{0} / 2);  // these look all the time
      engines_.push_back(std::make_unique<Engine>(*device_, slot, kSlice, kSwitch));
    }
  }
  Engine& a() { return *engines_[0]; }
  Engine& b() { return *engines_[1]; }
  Engine& c() { return *engines_[2]; }
  std::unique_ptr<Device> device_ = std::make_unique<Device>();
  std::vector<std::unique_ptr<Engine>> engines_;
};

TEST_F(EngineTest, FreeOnesAreHadAtOnceAndSwitchingCosts) {
  ASSERT_TRUE(a().acquire(kBase, kBase));
  EXPECT_EQ(a().ready_ns(), kBase + kSwitch);
  a().release(kBase + 100'000);
  ASSERT_TRUE(a().acquire(kBase + 200'000, kBase + 200'000));
  EXPECT_EQ(a().ready_ns(), kBase + 200'000);  // its own context is still there
}

TEST_F(EngineTest, ArrivalWithinTheSliceWaitsForItsEnd) {
  ASSERT_TRUE(a().acquire(kBase, kBase));
  EXPECT_FALSE(b().acquire(kBase + 500'000, kBase + 500'000));
  EXPECT_EQ(b().next_look_ns(), kBase + kSlice);
  ASSERT_TRUE(b().acquire(kBase + 500'000, kBase + kSlice + 77'000));  // looked late
  EXPECT_EQ(b().ready_ns(), kBase + kSlice + kSwitch);                 // yet got it in time
  std::uint64_t lost = 0;
  EXPECT_FALSE(a().kept_until(kBase + kSlice + 50'000, &lost));
  EXPECT_EQ(lost, kBase + kSlice);
}

TEST_F(EngineTest, ArrivalAfterTheSlicePreemptsAtOnce) {
  ASSERT_TRUE(a().acquire(kBase, kBase));
  const std::uint64_t now = kBase + 5 * kSlice;
  ASSERT_TRUE(b().acquire(now, now));
  EXPECT_EQ(b().ready_ns(), now + kSwitch);
  std::uint64_t lost = 0;
  EXPECT_TRUE(a().kept_until(now - 1000, &lost));  // what had ended before is not undone
  EXPECT_FALSE(a().kept_until(now + 1000, &lost));
  EXPECT_EQ(lost, now);
  // a() is back in the round without asking again, and gets its turn when b() has nothing left.
  b().release(now + 300'000);
  ASSERT_TRUE(a().acquire(now, now + 310'000));
  EXPECT_EQ(a().ready_ns(), now + 300'000 + kSwitch);
}

TEST_F(EngineTest, HolderThatLooksFirstGivesInTheOthersName) {
  ASSERT_TRUE(a().acquire(kBase, kBase));
  EXPECT_FALSE(b().acquire(kBase + 100, kBase + 100));
  std::uint64_t lost = 0;
  EXPECT_FALSE(a().kept_until(kBase + kSlice + 30'000, &lost));
  EXPECT_EQ(lost, kBase + kSlice);
  ASSERT_TRUE(b().acquire(kBase + 100, kBase + kSlice + 40'000));
  EXPECT_EQ(b().ready_ns(), kBase + kSlice + kSwitch);
}

TEST_F(EngineTest, WaitersTakeTurns) {
  ASSERT_TRUE(a().acquire(kBase, kBase));
  EXPECT_FALSE(c().acquire(kBase + 100, kBase + 100));
  EXPECT_FALSE(b().acquire(kBase + 200, kBase + 200));
  a().release(kBase + 1000);
  ASSERT_TRUE(b().acquire(kBase + 200, kBase + 1000));  // the next slot after a()'s, though c() came before
  EXPECT_FALSE(a().acquire(kBase + 2000, kBase + 2000));
  EXPECT_FALSE(a().acquire(kBase + 2000, kBase + 1000 + kSlice));
  ASSERT_TRUE(c().acquire(kBase + 100, kBase + 1000 + kSlice));
  EXPECT_EQ(c().ready_ns(), kBase + 1000 + kSlice + kSwitch);
}

TEST_F(EngineTest, DeadOnesGetNothing) {
  ASSERT_TRUE(a().acquire(kBase, kBase));
  EXPECT_FALSE(b().acquire(kBase + 100, kBase + 100));
  EXPECT_FALSE(c().acquire(kBase + 200, kBase + 200));
  // b()'s executor has not looked for long, and the process of that identity is not there.
  device_->slots[1].beat_ns.store(kBase);
  device_->slots[1].owner.store(identity_of(1) + (ProcessIdentity{1} << kPidBits));
  ASSERT_TRUE(c().acquire(kBase + 200, kBase + 100 * kSlice));
}

TEST(Machine, MemoryHasALimit) {
  auto device = std::make_unique<Device>();
  const int first = claim_slot(*device), second = claim_slot(*device);
  ASSERT_NE(first, second);
  EXPECT_TRUE(charge(*device, first, 600, 1000));
  EXPECT_FALSE(charge(*device, second, 500, 1000));
  EXPECT_TRUE(charge(*device, second, 400, 1000));
  EXPECT_EQ(used_bytes(*device), 1000u);
  release_slot(*device, first);
  EXPECT_EQ(used_bytes(*device), 400u);
  EXPECT_FALSE(charge(*device, second, ~std::uint64_t{0}, 1000));
}

TEST(Machine, CopyEngineIsReservedInOrder) {
  auto device = std::make_unique<Device>();
  EXPECT_EQ(reserve_copy(*device, Direction::kHtoD, kBase, 100), kBase + 100);
  EXPECT_EQ(reserve_copy(*device, Direction::kHtoD, kBase, 100), kBase + 200);
  EXPECT_EQ(reserve_copy(*device, Direction::kDtoH, kBase, 100), kBase + 100);
}

TEST(Machine, LoadIsThatOfTheLastSecond) {
  auto device = std::make_unique<Device>();
  for (std::uint64_t t = 0; t < 2'000'000'000; t += 10'000'000) add_busy(*device, kBase + t, 5'000'000);
  EXPECT_NEAR(busy_percent(*device, kBase + 2'000'000'000), 50, 3);
  EXPECT_EQ(busy_percent(*device, kBase + 9'000'000'000), 0u);
}

}  // namespace
}  // namespace sluice::emulator
