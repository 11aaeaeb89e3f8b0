#include "sluice/cuda_abi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

namespace sluice::cuda_abi {
namespace {

// A call of every work expression with null and zero arguments: the shim evaluates them before the driver has checked
// anything.
struct Work {
  std::uint64_t units = 0;
};
#define SLUICE_KERNEL(function, blocks) ((void)(function), Work{static_cast<std::uint64_t>(blocks)})
#define SLUICE_KERNEL_EX(function, blocks, config) ((void)overlaps(config), SLUICE_KERNEL(function, blocks))
#define SLUICE_GRAPH(graph) ((void)(graph), Work{1})
#define SLUICE_BYTES(bytes) \
  Work { static_cast<std::uint64_t>(bytes) }
#define SLUICE_DEFAULT_STREAM(flags) reinterpret_cast<CUstream>(flags == 2 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY)
#define SLUICE_SUBMIT(symbol, name, version, flags, kind, stream, work, params, args) \
  [[maybe_unused]] std::pair<CUstream, Work> submit_##symbol params {                 \
    (void)sink args;                                                                  \
    return {stream, work};                                                            \
  }
template <class... Args>
int sink(const Args&...) {
  return 0;
}
#include "sluice/cuda_abi/submits.inc"

#define SLUICE_SUBMIT(symbol, name, version, flags, kind, stream, work, params, args) \
  {#symbol, #name, version, flags, Kind::k##kind},
struct Submit {
  const char* symbol;
  const char* name;
  int version;
  std::uint64_t flags;
  Kind kind;
};
constexpr Submit kSubmits[] = {
#include "sluice/cuda_abi/submits.inc"
};

const char* symbol_of(const char* name, int version, std::uint64_t flags) {
  const Entry* e = find(name, version, flags);
  return e ? e->symbol : nullptr;
}

TEST(CudaAbi, FindTakesTheNewestAbiThatIsNotTooNew) {
  EXPECT_STREQ(symbol_of("cuMemAlloc", 13000, 0), "cuMemAlloc_v2");
  EXPECT_STREQ(symbol_of("cuMemAlloc", 3020, 0), "cuMemAlloc_v2");
  EXPECT_STREQ(symbol_of("cuMemAlloc", 3019, 0), "cuMemAlloc");
  EXPECT_STREQ(symbol_of("cuGetProcAddress", 11030, 0), "cuGetProcAddress");
  EXPECT_STREQ(symbol_of("cuGetProcAddress", 12000, 0), "cuGetProcAddress_v2");
  EXPECT_STREQ(symbol_of("cuMemPrefetchAsync", 8000, 0), "cuMemPrefetchAsync");
  EXPECT_STREQ(symbol_of("cuMemPrefetchAsync", 12020, 2), "cuMemPrefetchAsync_v2_ptsz");
  EXPECT_STREQ(symbol_of("cuMemcpyBatchAsync", 12080, 0), "cuMemcpyBatchAsync");
  EXPECT_STREQ(symbol_of("cuMemcpyBatchAsync", 13000, 0), "cuMemcpyBatchAsync_v2");
  EXPECT_STREQ(symbol_of("cuStreamBeginCapture", 10000, 0), "cuStreamBeginCapture");
  EXPECT_STREQ(symbol_of("cuStreamBeginCapture", 10010, 2), "cuStreamBeginCapture_v2_ptsz");
  EXPECT_STREQ(symbol_of("cuGraphInstantiate", 10000, 0), "cuGraphInstantiate");
  EXPECT_STREQ(symbol_of("cuGraphInstantiate", 11000, 0), "cuGraphInstantiate_v2");
  // cuda.h maps the name to cuGraphInstantiateWithFlags from 12.0 on; drivers do not.
  EXPECT_STREQ(symbol_of("cuGraphInstantiate", 12000, 0), "cuGraphInstantiate_v2");
  EXPECT_STREQ(symbol_of("cuCtxCreate", 11039, 0), "cuCtxCreate_v2");
  EXPECT_STREQ(symbol_of("cuCtxCreate", 12050, 0), "cuCtxCreate_v4");
  EXPECT_STREQ(symbol_of("cuEventElapsedTime", 12080, 0), "cuEventElapsedTime_v2");
}

TEST(CudaAbi, FlagsChooseTheDefaultStream) {
  EXPECT_STREQ(symbol_of("cuLaunchKernel", 13000, 2), "cuLaunchKernel_ptsz");
  EXPECT_STREQ(symbol_of("cuLaunchKernel", 13000, 1), "cuLaunchKernel");
  EXPECT_STREQ(symbol_of("cuMemcpyHtoD", 13000, 2), "cuMemcpyHtoD_v2_ptds");
  EXPECT_STREQ(symbol_of("cuMemAlloc", 13000, 2), "cuMemAlloc_v2");
  EXPECT_STREQ(symbol_of("cuLaunchKernel", 13000, 3), "cuLaunchKernel_ptsz");
  EXPECT_EQ(find("cuLaunchKernel", 4000, 2), nullptr);  // the per-thread variant came with 7.0
  EXPECT_EQ(find("cuLaunchKernel", 13000, 4), nullptr);
}

TEST(CudaAbi, UnknownNamesAndVersionsGiveNothing) {
  EXPECT_EQ(find("cuNoSuchThing", 13000, 0), nullptr);
  EXPECT_EQ(find(nullptr, 13000, 0), nullptr);
  EXPECT_EQ(find("cuLaunchKernelEx", 11050, 0), nullptr);
  EXPECT_EQ(find_symbol("cuMemAlloc_v9"), nullptr);
}

TEST(CudaAbi, EveryEntryIsFoundByItsOwnKeyAndExported) {
  for (const Entry& e : entries()) {
    EXPECT_EQ(find(e.name, e.version, e.flags), &e) << e.symbol;
    ASSERT_NE(find_symbol(e.symbol), nullptr) << e.symbol;
    EXPECT_STREQ(find_symbol(e.symbol)->symbol, e.symbol);
    EXPECT_TRUE(std::ranges::any_of(exports(), [&](const char* s) { return std::string_view(s) == e.symbol; }))
        << e.symbol;
  }
}

TEST(CudaAbi, TablesAreSortedAndWithoutDuplicates) {
  auto less = [](const Entry& a, const Entry& b) {
    return std::tuple(std::string_view(a.name), a.flags, a.version) <
           std::tuple(std::string_view(b.name), b.flags, b.version);
  };
  for (std::size_t i = 1; i < entries().size(); ++i)
    EXPECT_TRUE(less(entries()[i - 1], entries()[i])) << entries()[i].symbol;
  for (std::size_t i = 1; i < exports().size(); ++i) EXPECT_LT(std::string_view(exports()[i - 1]), exports()[i]);
}

TEST(CudaAbi, SubmitsHoldsExactlyTheClassSubmits) {
  std::set<std::string> submits, classed;
  for (const Submit& s : kSubmits) submits.insert(s.symbol);
  for (const Entry& e : entries()) {
    if (e.cls == Class::kSubmits) classed.insert(e.symbol);
  }
  EXPECT_EQ(submits, classed);
  // Stream memory operations order work; a gate before one could close a circle of waits between jobs.
  for (const char* name : {"cuStreamWaitValue32", "cuStreamWriteValue64", "cuStreamBatchMemOp"}) {
    EXPECT_EQ(find(name, kCudaVersion, 0)->cls, Class::kOther) << name;
  }
}

TEST(CudaAbi, WorkIsComputedIn64Bits) {
  auto [stream, work] =
      submit_cuLaunchKernel(nullptr, 1u << 31, 65535, 65535, 1, 1, 1, 0, CU_STREAM_PER_THREAD, nullptr, nullptr);
  EXPECT_EQ(stream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(work.units, (std::uint64_t{1} << 31) * 65535 * 65535);
  EXPECT_EQ(submit_cuMemsetD2D32_v2(0, 0, 0, std::size_t{1} << 33, 3).second.units, std::uint64_t{12} << 33);
  EXPECT_EQ(submit_cuMemcpyHtoD_v2_ptds(0, nullptr, 7).first, CU_STREAM_PER_THREAD);
  EXPECT_EQ(submit_cuMemcpyHtoD_v2(0, nullptr, 7).first, CU_STREAM_LEGACY);
}

TEST(CudaAbi, NullPointersInArgumentsAreBorne) {
  EXPECT_EQ(submit_cuLaunchKernelEx(nullptr, nullptr, nullptr, nullptr).second.units, 0u);
  EXPECT_EQ(submit_cuLaunchKernelEx_ptsz(nullptr, nullptr, nullptr, nullptr).first, CU_STREAM_PER_THREAD);
  EXPECT_EQ(submit_cuLaunchCooperativeKernelMultiDevice(nullptr, 2, 0).second.units, 0u);
  EXPECT_EQ(submit_cuMemcpy3DAsync_v2(nullptr, nullptr).second.units, 0u);
  EXPECT_EQ(submit_cuMemcpyBatchAsync_v2(nullptr, nullptr, nullptr, 3, nullptr, nullptr, 0, nullptr).second.units, 0u);
  EXPECT_EQ(submit_cuMemcpy3DBatchAsync_v2(3, nullptr, 0, nullptr).second.units, 0u);
}

TEST(CudaAbi, BatchesAreSummed) {
  std::size_t sizes[] = {3, 4, 5};
  EXPECT_EQ(submit_cuMemcpyBatchAsync_v2(nullptr, nullptr, sizes, 3, nullptr, nullptr, 0, nullptr).second.units, 12u);
  CUDA_MEMCPY3D_BATCH_OP ops[2] = {};
  ops[0].extent = {2, 3, 4};
  ops[1].extent = {5, 1, 1};
  EXPECT_EQ(submit_cuMemcpy3DBatchAsync_v2(2, ops, 0, nullptr).second.units, 29u);
}

}  // namespace
}  // namespace sluice::cuda_abi
