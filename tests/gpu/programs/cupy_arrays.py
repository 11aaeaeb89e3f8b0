"""CuPy: elementwise kernels, sorting, a raw kernel, its own pool, and a stream of its own."""
from digest import need, show, skip

cupy = need("cupy")
try:
    cupy.arange(4).sum().get()
except Exception as error:  # built for another CUDA, or without the compiler of kernels
    skip(f"needs a CuPy that works with this driver: {error}")
kernel = cupy.RawKernel(r"""
extern "C" __global__ void mix(unsigned* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned v = x[i];
    for (int round = 0; round < 64; ++round) v = v * 1664525u + 1013904223u;
    x[i] = v;
  }
}""", "mix")
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    values = cupy.arange(1 << 20, dtype=cupy.uint32)
    for _ in range(200):
        kernel((264,), (256,), (values, values.size))
        values = cupy.sort(values ^ cupy.uint32(0x5bd1e995))
stream.synchronize()
show("values", cupy.asnumpy(values))
show("sum", cupy.asnumpy(values.sum(dtype=cupy.uint64)))
