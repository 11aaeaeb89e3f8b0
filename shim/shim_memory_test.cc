// What the shim counts of memory, road by road, and what it refuses.
#include <algorithm>

#include "shim_test.h"

namespace sluice::shim {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class ShimMemoryTest : public ShimTest {
 public:
  template <class F>
  static F* entry(const char* name) {
    static void* const library = dlopen(SLUICE_SHIM, RTLD_NOW | RTLD_LOCAL);
    F* function = reinterpret_cast<F*>(dlsym(library, name));
    EXPECT_NE(function, nullptr) << name;
    return function;
  }
  std::uint64_t held() const { return self().memory_bytes.load(); }
  void limit(std::uint64_t bytes) const {
    board::Job& job = the_board().jobs[self().job.load()];
    job.memory_limit_bytes.store(bytes);
    job.memory_told.store(1);  // the message is tests/cli's
  }
  std::uint64_t driver_free() const {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver().mem_info(&free, &total), CUDA_SUCCESS);
    return free;
  }
  CUmemoryPool create_pool() const {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(entry<decltype(::cuMemPoolCreate)>("cuMemPoolCreate")(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }
  CUresult create(CUmemGenericAllocationHandle* handle, std::uint64_t bytes) const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return entry<decltype(::cuMemCreate)>("cuMemCreate")(handle, bytes, &properties, 0);
  }

 protected:
  void SetUp() override {
    ShimTest::SetUp();
    before_ = held();
  }
  void TearDown() override {
    limit(0);
    EXPECT_EQ(held(), before_);
    ShimTest::TearDown();
  }
  std::uint64_t grown() const { return held() - before_; }

 private:
  std::uint64_t before_ = 0;
};

// A way to take 8 MiB and to give it back.
struct Road {
  const char* name;
  CUresult (*take)(const ShimMemoryTest& test, std::uint64_t* out);
  CUresult (*give)(const ShimMemoryTest& test, std::uint64_t taken);
};
std::ostream& operator<<(std::ostream& out, const Road& road) { return out << road.name; }

using Async = CUresult(CUdeviceptr*, std::size_t, CUstream);
using FromPool = CUresult(CUdeviceptr*, std::size_t, CUmemoryPool, CUstream);
using FreeAsync = CUresult(CUdeviceptr, CUstream);
constexpr std::uint64_t kTaken = 8 * kMiB;

CUresult free_plain(const ShimMemoryTest& test, std::uint64_t at) {
  return test.entry<decltype(::cuMemFree)>("cuMemFree_v2")(at);
}
template <bool kPerThread>
CUresult free_ordered(const ShimMemoryTest& test, std::uint64_t at) {
  const char* name = kPerThread ? "cuMemFreeAsync_ptsz" : "cuMemFreeAsync";
  const CUresult result = test.entry<FreeAsync>(name)(at, test.stream());
  return result == CUDA_SUCCESS ? test.shim().synchronize(test.stream()) : result;
}
template <bool kPerThread>
CUresult alloc_ordered(const ShimMemoryTest& test, std::uint64_t* out) {
  CUdeviceptr at = 0;
  const char* name = kPerThread ? "cuMemAllocAsync_ptsz" : "cuMemAllocAsync";
  const CUresult result = test.entry<Async>(name)(&at, kTaken, test.stream());
  *out = at;
  return result;
}
template <bool kPerThread>
CUresult alloc_from_pool(const ShimMemoryTest& test, std::uint64_t* out) {
  static const CUmemoryPool pool = test.create_pool();
  CUdeviceptr at = 0;
  const char* name = kPerThread ? "cuMemAllocFromPoolAsync_ptsz" : "cuMemAllocFromPoolAsync";
  const CUresult result = test.entry<FromPool>(name)(&at, kTaken, pool, test.stream());
  *out = at;
  return result;
}

const Road kRoads[] = {
    {"Alloc",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       CUdeviceptr at = 0;
       const CUresult result = test.shim().alloc(&at, kTaken);
       *out = at;
       return result;
     },
     free_plain},
    {"AllocFreedInOrder",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       CUdeviceptr at = 0;
       const CUresult result = test.shim().alloc(&at, kTaken);
       *out = at;
       return result;
     },
     free_ordered<false>},
    {"Pitch",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       CUdeviceptr at = 0;
       std::size_t pitch = 0;
       const CUresult result =
           test.entry<decltype(::cuMemAllocPitch)>("cuMemAllocPitch_v2")(&at, &pitch, 1000, kTaken / 1024, 4);
       *out = at;
       return result;
     },
     free_plain},
    {"Managed",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       CUdeviceptr at = 0;
       const CUresult result =
           test.entry<decltype(::cuMemAllocManaged)>("cuMemAllocManaged")(&at, kTaken, CU_MEM_ATTACH_GLOBAL);
       *out = at;
       return result;
     },
     free_plain},
    {"Async", alloc_ordered<false>, free_ordered<false>},
    {"AsyncPerThread", alloc_ordered<true>, free_ordered<true>},
    {"AsyncFreedPlainly", alloc_ordered<false>, free_plain},
    {"FromPool", alloc_from_pool<false>, free_ordered<false>},
    {"FromPoolPerThread", alloc_from_pool<true>, free_ordered<true>},
    {"Create",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       CUmemGenericAllocationHandle handle = 0;
       const CUresult result = test.create(&handle, kTaken);
       *out = handle;
       return result;
     },
     [](const ShimMemoryTest& test, std::uint64_t handle) {
       return test.entry<decltype(::cuMemRelease)>("cuMemRelease")(handle);
     }},
    {"Array",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       const CUDA_ARRAY_DESCRIPTOR description = {1024, 1024, CU_AD_FORMAT_HALF, 4};
       CUarray array = nullptr;
       const CUresult result = test.entry<decltype(::cuArrayCreate)>("cuArrayCreate_v2")(&array, &description);
       *out = reinterpret_cast<std::uint64_t>(array);
       return result;
     },
     [](const ShimMemoryTest& test, std::uint64_t array) {
       return test.entry<decltype(::cuArrayDestroy)>("cuArrayDestroy")(reinterpret_cast<CUarray>(array));
     }},
    {"Array3D",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       const CUDA_ARRAY3D_DESCRIPTOR description = {128, 128, 128, CU_AD_FORMAT_FLOAT, 1, 0};
       CUarray array = nullptr;
       const CUresult result = test.entry<decltype(::cuArray3DCreate)>("cuArray3DCreate_v2")(&array, &description);
       *out = reinterpret_cast<std::uint64_t>(array);
       return result;
     },
     [](const ShimMemoryTest& test, std::uint64_t array) {
       return test.entry<decltype(::cuArrayDestroy)>("cuArrayDestroy")(reinterpret_cast<CUarray>(array));
     }},
    {"Mipmapped",
     [](const ShimMemoryTest& test, std::uint64_t* out) {
       const CUDA_ARRAY3D_DESCRIPTOR description = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 2, 0};
       CUmipmappedArray array = nullptr;
       const CUresult result =
           test.entry<decltype(::cuMipmappedArrayCreate)>("cuMipmappedArrayCreate")(&array, &description, 1);
       *out = reinterpret_cast<std::uint64_t>(array);
       return result;
     },
     [](const ShimMemoryTest& test, std::uint64_t array) {
       return test.entry<decltype(::cuMipmappedArrayDestroy)>("cuMipmappedArrayDestroy")(
           reinterpret_cast<CUmipmappedArray>(array));
     }},
};

class RoadTest : public ShimMemoryTest, public testing::WithParamInterface<Road> {};

TEST_P(RoadTest, IsCountedAndGivenBack) {
  std::uint64_t one = 0, two = 0;
  ASSERT_EQ(GetParam().take(*this, &one), CUDA_SUCCESS);
  EXPECT_EQ(grown(), kTaken);
  ASSERT_EQ(GetParam().take(*this, &two), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 2 * kTaken);
  EXPECT_EQ(GetParam().give(*this, one), CUDA_SUCCESS);
  EXPECT_EQ(grown(), kTaken);
  EXPECT_EQ(GetParam().give(*this, two), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 0u);
}

TEST_P(RoadTest, IsRefusedBeyondTheLimitWithoutTheDriver) {
  limit(held() + kTaken + kTaken / 2);
  std::uint64_t one = 0, two = 0;
  ASSERT_EQ(GetParam().take(*this, &one), CUDA_SUCCESS);
  const std::uint64_t free = driver_free();
  EXPECT_EQ(GetParam().take(*this, &two), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_free(), free);
  EXPECT_EQ(grown(), kTaken);
  EXPECT_GT(the_board().jobs[self().job.load()].memory_refusals.load(), 0u);
  EXPECT_EQ(GetParam().give(*this, one), CUDA_SUCCESS);
  ASSERT_EQ(GetParam().take(*this, &two), CUDA_SUCCESS);
  EXPECT_EQ(GetParam().give(*this, two), CUDA_SUCCESS);
}
INSTANTIATE_TEST_SUITE_P(By, RoadTest, testing::ValuesIn(kRoads),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(ShimMemoryTest, DoubleAndForeignFreesChangeNothing) {
  CUdeviceptr own = 0, foreign = 0;
  ASSERT_EQ(shim().alloc(&own, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(driver().alloc(&foreign, 4 * kMiB), CUDA_SUCCESS);  // past the shim
  EXPECT_EQ(grown(), kMiB);
  EXPECT_EQ(free_plain(*this, foreign), CUDA_SUCCESS);
  EXPECT_EQ(grown(), kMiB);
  EXPECT_EQ(free_plain(*this, own), CUDA_SUCCESS);
  EXPECT_NE(free_plain(*this, own), CUDA_SUCCESS);
  EXPECT_EQ(free_plain(*this, 0), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 0u);
  EXPECT_NE(entry<decltype(::cuMemRelease)>("cuMemRelease")(12345), CUDA_SUCCESS);
}

TEST_F(ShimMemoryTest, AFailedFreeIsStillHeld) {
  CUdeviceptr at = 0;
  ASSERT_EQ(shim().alloc(&at, kMiB), CUDA_SUCCESS);
  const auto set_current = shim().set_current;
  ASSERT_EQ(set_current(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(free_plain(*this, at), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(set_current(context()), CUDA_SUCCESS);
  EXPECT_EQ(grown(), kMiB);
  EXPECT_EQ(free_plain(*this, at), CUDA_SUCCESS);
}

TEST_F(ShimMemoryTest, WhatTheDriverRefusesIsNotCounted) {
  CUdeviceptr at = 0;
  the_board().jobs[self().job.load()].memory_told.store(1);
  EXPECT_EQ(shim().alloc(&at, std::size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(shim().alloc(&at, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(grown(), 0u);
}

TEST_F(ShimMemoryTest, AMappingHoldsItsMemoryAfterTheHandle) {
  CUmemGenericAllocationHandle one = 0, two = 0;
  ASSERT_EQ(create(&one, 2 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(create(&two, 4 * kMiB), CUDA_SUCCESS);
  CUdeviceptr at = 0;
  const auto map = entry<decltype(::cuMemMap)>("cuMemMap");
  const auto unmap = entry<decltype(::cuMemUnmap)>("cuMemUnmap");
  const auto release = entry<decltype(::cuMemRelease)>("cuMemRelease");
  ASSERT_EQ(entry<decltype(::cuMemAddressReserve)>("cuMemAddressReserve")(&at, 16 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(map(at, 2 * kMiB, 0, one, 0), CUDA_SUCCESS);
  ASSERT_EQ(map(at + 2 * kMiB, 4 * kMiB, 0, two, 0), CUDA_SUCCESS);
  ASSERT_EQ(map(at + 8 * kMiB, 4 * kMiB, 0, two, 0), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 6 * kMiB);
  EXPECT_EQ(release(one), CUDA_SUCCESS);
  EXPECT_EQ(release(two), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 6 * kMiB);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(entry<decltype(::cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle")(&again,
                                                                                          reinterpret_cast<void*>(at)),
            CUDA_SUCCESS);
  // One call over two mappings; then one over a gap, too.
  EXPECT_EQ(unmap(at, 6 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(release(again), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 4 * kMiB);
  EXPECT_EQ(unmap(at + 6 * kMiB, 10 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 0u);
}

TEST_F(ShimMemoryTest, AContextTakesItsMemoryWithIt) {
  CUcontext second = nullptr;
  ASSERT_EQ(entry<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&second, 0, 0), CUDA_SUCCESS);
  CUdeviceptr at[200] = {};
  for (CUdeviceptr& one : at) ASSERT_EQ(shim().alloc(&one, 4096), CUDA_SUCCESS);
  std::uint64_t array = 0;
  const auto road =
      std::find_if(std::begin(kRoads), std::end(kRoads), [](const Road& r) { return std::string(r.name) == "Array"; });
  ASSERT_EQ(road->take(*this, &array), CUDA_SUCCESS);
  EXPECT_EQ(grown(), kTaken + 200 * 4096);
  EXPECT_EQ(entry<decltype(::cuCtxDestroy)>("cuCtxDestroy_v2")(second), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 0u);
  ASSERT_EQ(shim().set_current(context()), CUDA_SUCCESS);
}

TEST_F(ShimMemoryTest, APoolCountsWithWhatItKeeps) {
  const CUmemoryPool pool = create_pool();
  cuuint64_t keep = 64 * kMiB;
  ASSERT_EQ(
      entry<decltype(::cuMemPoolSetAttribute)>("cuMemPoolSetAttribute")(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
      CUDA_SUCCESS);
  const auto alloc = entry<FromPool>("cuMemAllocFromPoolAsync");
  CUdeviceptr at = 0;
  ASSERT_EQ(alloc(&at, 8 * kMiB, pool, stream()), CUDA_SUCCESS);
  EXPECT_EQ(free_ordered<false>(*this, at), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 8 * kMiB);  // reserved still
  limit(held() + 4 * kMiB);
  // From what it keeps, without asking for more.
  ASSERT_EQ(alloc(&at, 8 * kMiB, pool, stream()), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 8 * kMiB);
  EXPECT_EQ(alloc(&at, 8 * kMiB, pool, stream()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(grown(), 8 * kMiB);
  CUdeviceptr plain = 0;
  EXPECT_EQ(free_ordered<false>(*this, at), CUDA_SUCCESS);
  // Another road gets what the pool only keeps.
  ASSERT_EQ(shim().alloc(&plain, 12 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(grown(), 12 * kMiB);
  EXPECT_EQ(free_plain(*this, plain), CUDA_SUCCESS);
  EXPECT_EQ(entry<decltype(::cuMemPoolDestroy)>("cuMemPoolDestroy")(pool), CUDA_SUCCESS);
}

TEST_F(ShimMemoryTest, TheProgramSeesItsLimitAsTheCard) {
  CUdeviceptr at = 0;
  ASSERT_EQ(shim().alloc(&at, 8 * kMiB), CUDA_SUCCESS);
  std::size_t free = 0, total = 0, all = 0;
  ASSERT_EQ(driver().mem_info(&free, &all), CUDA_SUCCESS);
  ASSERT_EQ(shim().mem_info(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, all);
  const std::uint64_t most = held() + 100 * kMiB;
  limit(most);
  ASSERT_EQ(shim().mem_info(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, most);
  EXPECT_EQ(free, 100 * kMiB);
  const auto total_mem = entry<decltype(::cuDeviceTotalMem)>("cuDeviceTotalMem_v2");
  ASSERT_EQ(total_mem(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, most);
  EXPECT_EQ(shim().mem_info(nullptr, &total), driver().mem_info(nullptr, &total));
  // A limit above the card's size changes nothing.
  limit(all * 2);
  ASSERT_EQ(shim().mem_info(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, all);
  EXPECT_LE(free, driver_free());
  limit(0);
  EXPECT_EQ(free_plain(*this, at), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::shim
