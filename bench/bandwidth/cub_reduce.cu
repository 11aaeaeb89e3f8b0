// CUB's sum of 32-bit integers, timed: the rival of the read that `sluice doctor bandwidth` measures.
//   cub_reduce BYTES REPEATS      prints {"device": ..., "read": [bytes/s, ...]}
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_reduce.cuh>

#define CHECK(call)                                                                   \
  do {                                                                                \
    if (cudaError_t error = (call); error != cudaSuccess) {                           \
      std::fprintf(stderr, "cub_reduce: %s: %s\n", #call, cudaGetErrorString(error)); \
      return 1;                                                                       \
    }                                                                                 \
  } while (false)

int main(int argc, char** argv) {
  if (argc != 3 || std::atoll(argv[1]) < 4 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: cub_reduce BYTES REPEATS\n");
    return 2;
  }
  const long long bytes = std::atoll(argv[1]), items = bytes / 4;
  const int repeats = std::atoi(argv[2]);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int *in = nullptr, *out = nullptr;
  CHECK(cudaMalloc(&in, bytes));
  CHECK(cudaMalloc(&out, sizeof *out));
  CHECK(cudaMemset(in, 0x5a, bytes));
  void* scratch = nullptr;
  size_t scratch_bytes = 0;
  CHECK(cub::DeviceReduce::Sum(scratch, scratch_bytes, in, out, items));
  CHECK(cudaMalloc(&scratch, scratch_bytes));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::printf("{\"device\": \"%s\", \"read\": [", properties.name);
  for (int i = 0; i < repeats; ++i) {
    CHECK(cub::DeviceReduce::Sum(scratch, scratch_bytes, in, out, items));
    CHECK(cudaEventRecord(begin));
    CHECK(cub::DeviceReduce::Sum(scratch, scratch_bytes, in, out, items));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    std::printf("%s%.6g", i == 0 ? "" : ", ", static_cast<double>(bytes) / (milliseconds / 1e3));
  }
  std::printf("]}\n");
  return 0;
}
