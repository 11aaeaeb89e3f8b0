// check(): planted races and undeclared accesses are found and named; clean pipelines raise no alarm.
#include <random>

#include "graph_test.h"

namespace sluice::graph {
namespace {

using ::testing::IsEmpty;

constexpr std::uint32_t kFloats = 32;
constexpr std::uint64_t kBytes = 4 * kFloats;

enum class Plant { kWritesFurther, kReadsFurther, kUpdatesWhatItReads, kReadsWhatItWrites, kCode, kHost, kOverflow };

// Three plants of each kind, at different places.
class PlantedTest : public GraphTest, public ::testing::WithParamInterface<std::tuple<Plant, int>> {};

TEST_P(PlantedTest, IsFoundAndNamed) {
  const auto [plant, variant] = GetParam();
  const std::uint32_t half = kFloats / 2, n = 4 + 4 * static_cast<std::uint32_t>(variant);
  const std::uint64_t middle = half * 4;
  std::vector<float> ones(kFloats, 1.5F);
  const CUdeviceptr x = floats(ones), y = floats(ones), z = floats(ones);
  void* pinned = nullptr;
  ASSERT_EQ(call<decltype(&cuMemHostAlloc)>("cuMemHostAlloc")(&pinned, kBytes, CU_MEMHOSTALLOC_DEVICEMAP),
            CUDA_SUCCESS);
  auto p = pipeline();
  const Buffer bx = p->add_buffer("x", x, kBytes), by = p->add_buffer("y", y, kBytes),
               bz = p->add_buffer("z", z, kBytes);
  const Buffer bh = p->add_buffer("h", reinterpret_cast<CUdeviceptr>(pinned), kBytes);
  std::string buffer = "x", other = "partner";
  bool is_write = true;
  std::int64_t offset = static_cast<std::int64_t>(middle);
  p->add_kernel("prepare", fill(bz, 3, kFloats), {writes(bz)});
  switch (plant) {
    case Plant::kWritesFurther:
      p->add_kernel("partner", fill({bx, middle}, 2, half), {writes(bx, middle)});
      p->add_kernel("culprit", fill(bx, 4, half + n), {writes(bx, 0, middle)});
      break;
    case Plant::kReadsFurther:
      p->add_kernel("partner", fill({bx, middle}, 2, half), {writes(bx, middle)});
      p->add_kernel("culprit", saxpy(half + n, 1, bx, by), {reads(bx, 0, middle), updates(by)});
      is_write = false;
      break;
    case Plant::kUpdatesWhatItReads:
      p->add_kernel("partner", saxpy(n, 1, bx, by), {reads(bx), updates(by)});
      p->add_kernel("culprit", saxpy(n, 1, bz, bx), {reads(bz), reads(bx)});
      offset = 0;
      break;
    case Plant::kReadsWhatItWrites:
      p->add_kernel("culprit", saxpy(n, 1, bz, {bx, middle}), {reads(bz), writes(bx)});
      is_write = false;
      other = "";
      break;
    case Plant::kCode:
      p->add_kernel("partner", fill(bx, 2, kFloats), {writes(bx)});
      p->add_code("culprit",
                  [=, this](CUstream stream, const Addresses& where) {
                    const auto set = call<decltype(&cuMemsetD8Async)>("cuMemsetD8Async");
                    const bool done = set(where.of(by), 0, 4, stream) == CUDA_SUCCESS &&
                                      set(where.of(bx) + middle, 7, n, stream) == CUDA_SUCCESS;
                    return done ? Status() : Status::error(Code::kInternal, "memset");
                  },
                  {writes(by, 0, 4)});
      break;
    case Plant::kHost:
      buffer = "h";
      p->add_memset("partner", bh, 0);
      p->add_host("culprit", [=](const Addresses& where) { std::fill_n(where.pointer<float>(bh) + half, n, 5.0F); },
                  {});
      break;
    case Plant::kOverflow:
      p->add_kernel("culprit", fill(bx, 4, kFloats + n), {writes(bx)});
      offset = kBytes;
      other = "";
      break;
  }
  p->add_kernel("after", saxpy(kFloats, 1, bx, bz), {reads(bx), updates(bz)});
  Result<std::vector<Finding>> findings = p->check();
  ASSERT_TRUE(findings.ok()) << findings.status().message();
  ASSERT_EQ(findings->size(), 1U);
  const Finding& found = findings->front();
  EXPECT_EQ(found.stage, "culprit");
  EXPECT_EQ(found.buffer, buffer);
  EXPECT_EQ(found.is_write, is_write);
  EXPECT_EQ(found.offset / 4 * 4, offset);  // the first byte of a float may be the same by chance
  EXPECT_EQ(found.other, other) << found.to_text();
  EXPECT_EQ(read(x, kFloats), ones);  // it ran on copies
}
INSTANTIATE_TEST_SUITE_P(Plants, PlantedTest,
                         ::testing::Combine(::testing::Values(Plant::kWritesFurther, Plant::kReadsFurther,
                                                              Plant::kUpdatesWhatItReads, Plant::kReadsWhatItWrites,
                                                              Plant::kCode, Plant::kHost, Plant::kOverflow),
                                            ::testing::Range(0, 3)));

using CleanTest = GraphTest;

TEST_F(CleanTest, TwentyPipelinesRaiseNoAlarm) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> values(kFloats);
    for (float& value : values) value = static_cast<float>(random() % 9);
    const CUdeviceptr at = floats(values);
    auto p = pipeline();
    const Buffer b = p->add_buffer("b", at, kBytes), t = p->add_temporary("t", kBytes);
    p->add_memset("clear", t, 0);
    for (int s = 0; s < 12; ++s) {
      const auto n = static_cast<std::uint32_t>(1 + random() % 8);
      const std::uint64_t x = 4 * (random() % (kFloats - n)), y = 4 * (random() % (kFloats - n));
      switch (random() % 4) {
        case 0:
          p->add_kernel("fill", fill({b, y}, 2, n), {writes(b, y, 4 * n)});
          break;
        case 1:  // writes less than it declares
          p->add_kernel("part", fill({t, y}, 2, n), {writes(t)});
          break;
        case 2:
          p->add_copy("copy", b, t, 4 * n, x, y);
          break;
        default:
          p->add_kernel("saxpy", saxpy(n, 0.5F, {b, x}, {t, y}), {reads(b, x, 4 * n), updates(t, y, 4 * n)});
      }
    }
    Result<std::vector<Finding>> findings = p->check();
    ASSERT_TRUE(findings.ok()) << findings.status().message();
    for (const Finding& finding : *findings) ADD_FAILURE() << "seed " << seed << ": " << finding.to_text();
    EXPECT_DONE(p->launch(stream_));  // and the check has left the pipeline as it was
    synchronize();
  }
}

TEST_F(CleanTest, HostFunctionsSeeTheirOwnBuffersAgainAfterACheck) {
  void* pinned = nullptr;
  ASSERT_EQ(call<decltype(&cuMemHostAlloc)>("cuMemHostAlloc")(&pinned, 64, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  auto* numbers = static_cast<float*>(pinned);
  numbers[0] = 0;
  auto p = pipeline();
  const Buffer b = p->add_buffer("b", reinterpret_cast<CUdeviceptr>(pinned), 64);
  p->add_host("count", [b](const Addresses& where) { where.pointer<float>(b)[0] += 1; }, {updates(b)});
  EXPECT_DONE(p->launch(stream_));
  Result<std::vector<Finding>> findings = p->check();
  ASSERT_TRUE(findings.ok()) << findings.status().message();
  EXPECT_THAT(*findings, IsEmpty());
  EXPECT_DONE(p->launch(stream_));
  synchronize();
  EXPECT_EQ(numbers[0], 2);
}

}  // namespace
}  // namespace sluice::graph
