"""A kernel that numba compiles at run time, on the default and on an own stream."""
from digest import need, show, skip

numpy, numba = need("numpy", "numba")
from numba import cuda  # noqa: E402

if not cuda.is_available():
    skip("needs a GPU that numba can use")


@cuda.jit
def advance(x, rounds):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        for _ in range(rounds):
            v = (v * 48271) % 2147483647
        x[i] = v


try:
    advance[1, 1](cuda.to_device(numpy.ones(1, dtype=numpy.int64)), 1)
    cuda.synchronize()
except Exception as error:  # a numba from before this CUDA, or without its compiler
    skip(f"needs a numba that works with this driver: {error}")

host = numpy.arange(1, (1 << 18) + 1, dtype=numpy.int64)
stream = cuda.stream()
on_default, on_stream = cuda.to_device(host), cuda.to_device(host, stream=stream)
for _ in range(200):
    advance[1024, 256](on_default, 16)
    advance[1024, 256, stream](on_stream, 16)
stream.synchronize()
show("default stream", on_default.copy_to_host())
show("own stream", on_stream.copy_to_host())
