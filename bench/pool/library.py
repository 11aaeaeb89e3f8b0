"""libsluice_pool.so, as far as the measurements need it."""

import ctypes


class PoolOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("capacity_bytes", ctypes.c_uint64), ("exportable", ctypes.c_int32)]


class PoolStats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("reserved_bytes", ctypes.c_uint64), ("active_bytes", ctypes.c_uint64),
                ("kept_bytes", ctypes.c_uint64), ("free_bytes", ctypes.c_uint64), ("peak_bytes", ctypes.c_uint64),
                ("largest_free_bytes", ctypes.c_uint64), ("fragmentation_ratio", ctypes.c_double),
                ("allocations", ctypes.c_uint64), ("frees", ctypes.c_uint64), ("failures", ctypes.c_uint64),
                ("waits", ctypes.c_uint64), ("drains", ctypes.c_uint64), ("gathers", ctypes.c_uint64)]

    def __init__(self):
        super().__init__(size=ctypes.sizeof(PoolStats))


class Pool:
    """A pool on the current context's device, closed by close()."""

    def __init__(self, path, capacity_bytes):
        self.library = ctypes.CDLL(path)
        self.library.sluice_last_error.restype = ctypes.c_char_p
        options = PoolOptions(ctypes.sizeof(PoolOptions), capacity_bytes, 0)
        self.handle = ctypes.c_void_p()
        if self.library.sluice_pool_create(ctypes.byref(options), ctypes.byref(self.handle)) != 0:
            raise RuntimeError(self.library.sluice_last_error().decode())

    def close(self):
        self.library.sluice_pool_destroy(self.handle)
