// The emulated driver's roads to memory: pools, virtual memory management, arrays.
#include "driver_test.h"

namespace {

using sluice::emulator::testing::DriverTest;

constexpr std::size_t kMiB = 1 << 20;

class MemoryRoads : public DriverTest {
 protected:
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_OK(cuMemGetInfo(&free, &total));
    return free;
  }
  static cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 0;
    EXPECT_OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
  }
  CUmemAllocationProp on_device() const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    return properties;
  }
  CUmemAccessDesc access() const {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, device_}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
};

TEST_F(MemoryRoads, APoolReservesInChunksAndKeepsWhatItMay) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  CUmemoryPool pool = nullptr;
  const std::size_t before = free_bytes();
  ASSERT_OK(cuMemPoolCreate(&pool, &properties));
  cuuint64_t keep = 4 * kMiB;
  EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr p = 0, q = 0;
  ASSERT_OK(cuMemAllocFromPoolAsync(&p, 5 * kMiB, pool, nullptr));
  ASSERT_OK(cuMemAllocFromPoolAsync(&q, 1, pool, nullptr));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 * kMiB);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 5 * kMiB + 1);
  EXPECT_EQ(free_bytes(), before - 6 * kMiB);
  EXPECT_OK(cuMemFreeAsync(p, nullptr));
  EXPECT_OK(cuMemFreeAsync(q, nullptr));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * kMiB);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 5 * kMiB + 1);
  EXPECT_OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuMemPoolDestroy(pool));
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryRoads, AnAllocationOutlivesItsPool) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  CUmemoryPool pool = nullptr, current = nullptr, standard = nullptr;
  const std::size_t before = free_bytes();
  ASSERT_OK(cuMemPoolCreate(&pool, &properties));
  ASSERT_OK(cuDeviceSetMemPool(device_, pool));
  EXPECT_OK(cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(current, pool);
  CUdeviceptr p = 0;
  ASSERT_OK(cuMemAllocAsync(&p, kMiB, nullptr));
  EXPECT_OK(cuMemPoolDestroy(pool));
  EXPECT_OK(cuDeviceGetMemPool(&current, device_));
  EXPECT_OK(cuDeviceGetDefaultMemPool(&standard, device_));
  EXPECT_EQ(current, standard);
  EXPECT_EQ(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free_bytes(), before - 2 * kMiB);
  EXPECT_OK(cuMemFree(p));
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(MemoryRoads, AMappingKeepsItsMemoryAfterTheHandleIsReleased) {
  const std::size_t before = free_bytes();
  const CUmemAllocationProp properties = on_device();
  CUmemGenericAllocationHandle handle = 0, again = 0;
  EXPECT_EQ(cuMemCreate(&handle, kMiB, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_OK(cuMemCreate(&handle, 2 * kMiB, &properties, 0));
  EXPECT_EQ(free_bytes(), before - 2 * kMiB);
  CUdeviceptr at = 0;
  ASSERT_OK(cuMemAddressReserve(&at, 4 * kMiB, 0, 0, 0));
  ASSERT_OK(cuMemMap(at, 2 * kMiB, 0, handle, 0));
  EXPECT_EQ(cuMemMap(at, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  int value = 5, back = 0;
  EXPECT_EQ(cuMemcpyHtoD(at, &value, 4), CUDA_ERROR_INVALID_VALUE);  // no access yet
  const CUmemAccessDesc allowed = access();
  ASSERT_OK(cuMemSetAccess(at, 2 * kMiB, &allowed, 1));
  // The same memory in a second place.
  ASSERT_OK(cuMemMap(at + 2 * kMiB, 2 * kMiB, 0, handle, 0));
  ASSERT_OK(cuMemSetAccess(at, 4 * kMiB, &allowed, 1));
  EXPECT_OK(cuMemcpyHtoD(at, &value, 4));
  EXPECT_OK(cuMemcpyDtoH(&back, at + 2 * kMiB, 4));
  EXPECT_EQ(back, 5);
  EXPECT_OK(cuMemsetD8(at + kMiB, 0, 2 * kMiB));  // across both
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuMemRelease(handle));
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + 100)));
  EXPECT_OK(cuMemUnmap(at, 4 * kMiB));
  EXPECT_EQ(free_bytes(), before - 2 * kMiB);
  EXPECT_OK(cuMemRelease(again));
  EXPECT_EQ(free_bytes(), before);
  EXPECT_OK(cuMemAddressFree(at, 4 * kMiB));
}

TEST_F(MemoryRoads, TheCardsSizeIsTheLimitOfEveryRoad) {
  std::size_t free = 0, total = 0;
  ASSERT_OK(cuMemGetInfo(&free, &total));
  const CUmemAllocationProp properties = on_device();
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr p = 0;
  CUarray array = nullptr;
  std::size_t pitch = 0;
  EXPECT_EQ(cuMemCreate(&handle, (total / (2 * kMiB) + 1) * 2 * kMiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocAsync(&p, total + 1, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocPitch(&p, &pitch, total / 1024, 1025, 4), CUDA_ERROR_OUT_OF_MEMORY);
  const CUDA_ARRAY3D_DESCRIPTOR huge = {1 << 15, 1 << 15, 2, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
  EXPECT_EQ(cuArray3DCreate(&array, &huge), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free_bytes(), free);
}

TEST_F(MemoryRoads, ArraysTakeTheirElements) {
  const std::size_t before = free_bytes();
  CUarray flat = nullptr, level = nullptr;
  const CUDA_ARRAY_DESCRIPTOR small = {64, 32, CU_AD_FORMAT_HALF, 4};
  ASSERT_OK(cuArrayCreate(&flat, &small));
  EXPECT_EQ(free_bytes(), before - 64 * 32 * 8);
  CUDA_ARRAY3D_DESCRIPTOR description = {};
  EXPECT_OK(cuArray3DGetDescriptor(&description, flat));
  EXPECT_EQ(description.Height, 32u);
  CUmipmappedArray pyramid = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR large = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  ASSERT_OK(cuMipmappedArrayCreate(&pyramid, &large, 3));
  EXPECT_EQ(free_bytes(), before - 64 * 32 * 8 - (64 * 64 + 32 * 32 + 16 * 16) * 4);
  ASSERT_OK(cuMipmappedArrayGetLevel(&level, pyramid, 1));
  EXPECT_OK(cuArray3DGetDescriptor(&description, level));
  EXPECT_EQ(description.Width, 32u);
  EXPECT_EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_OK(cuMipmappedArrayDestroy(pyramid));
  EXPECT_OK(cuArrayDestroy(flat));
  EXPECT_EQ(cuArrayDestroy(flat), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(free_bytes(), before);
}

}  // namespace
