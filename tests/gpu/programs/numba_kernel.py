"""A kernel that numba compiles at run time, on the default and on an own stream."""
from digest import need, show

numpy, numba = need("numpy", "numba")
from numba import cuda  # noqa: E402

if not cuda.is_available():
    import sys
    print("needs a GPU that numba can use", file=sys.stderr)
    sys.exit(77)


@cuda.jit
def advance(x, rounds):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        for _ in range(rounds):
            v = (v * 48271) % 2147483647
        x[i] = v


host = numpy.arange(1, (1 << 18) + 1, dtype=numpy.int64)
stream = cuda.stream()
on_default, on_stream = cuda.to_device(host), cuda.to_device(host, stream=stream)
for _ in range(200):
    advance[1024, 256](on_default, 16)
    advance[1024, 256, stream](on_stream, 16)
stream.synchronize()
show("default stream", on_default.copy_to_host())
show("own stream", on_stream.copy_to_host())
