"""The C interface of Sluice's engine (capi/include/sluice.h) for Python, as far as the benchmarks need it."""

import ctypes

import numpy as np

# ONNX's numbers, as sluice_dtype has them.
DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
          10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64}
NUMBERS = {np.dtype(kind): number for number, kind in DTYPES.items()}


class ModelOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("precision", ctypes.c_char_p),
                ("threads", ctypes.c_int32), ("passes_off", ctypes.c_char_p)]


class Error(RuntimeError):
    """A call that failed; `code` is a sluice_code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Library:
    def __init__(self, path):
        self._c = c = ctypes.CDLL(path)
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        dims, out = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER
        for name, result, arguments in (
            ("sluice_version", text, []),
            ("sluice_last_error", text, []),
            ("sluice_model_load", number, [text, out(ModelOptions), out(pointer)]),
            ("sluice_model_release", None, [pointer]),
            ("sluice_model_output_count", ctypes.c_size_t, [pointer]),
            ("sluice_model_output", number, [pointer, ctypes.c_size_t, out(text)]),
            ("sluice_session_create", number, [pointer, out(pointer)]),
            ("sluice_session_destroy", None, [pointer]),
            ("sluice_session_set_input", number, [pointer, text, number, ctypes.c_size_t, dims, pointer]),
            ("sluice_session_run", number, [pointer]),
            ("sluice_session_output", number,
             [pointer, text, out(number), out(ctypes.c_size_t), out(dims), out(pointer)]),
        ):
            function = getattr(c, name)
            function.restype, function.argtypes = result, arguments

    def check(self, code):
        if code:
            raise Error(code, self._c.sluice_last_error().decode("utf-8", "replace"))

    def version(self):
        return self._c.sluice_version().decode()

    def session(self, path, threads, precision="fp32"):
        return Session(self, self._c, path, threads, precision)


class Session:
    """One model and one session of it. Not thread safe."""

    def __init__(self, library, c, path, threads, precision):
        self._library, self._c, self._inputs = library, c, {}
        self._model, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        options = ModelOptions(ctypes.sizeof(ModelOptions), b"cpu", precision.encode(), threads, None)
        library.check(c.sluice_model_load(str(path).encode(), ctypes.byref(options), ctypes.byref(self._model)))
        library.check(c.sluice_session_create(self._model, ctypes.byref(self._session)))
        self.output_names = []
        for index in range(c.sluice_model_output_count(self._model)):
            name = ctypes.c_char_p()
            library.check(c.sluice_model_output(self._model, index, ctypes.byref(name)))
            self.output_names.append(name.value.decode())

    def bind(self, feeds):
        for name, array in feeds.items():
            # Keeps the shape () of a scalar, which ascontiguousarray would not.
            array = self._inputs[name] = np.require(array, requirements="C")
            dims = (ctypes.c_int64 * array.ndim)(*array.shape)
            self._library.check(self._c.sluice_session_set_input(
                self._session, name.encode(), NUMBERS[array.dtype], array.ndim, dims, array.ctypes.data))

    def run(self):
        self._library.check(self._c.sluice_session_run(self._session))

    def outputs(self):
        """Copies of all outputs by name."""
        result = {}
        for name in self.output_names:
            dtype, rank = ctypes.c_int(), ctypes.c_size_t()
            dims, data = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_void_p()
            self._library.check(self._c.sluice_session_output(
                self._session, name.encode(), ctypes.byref(dtype), ctypes.byref(rank), ctypes.byref(dims),
                ctypes.byref(data)))
            shape = tuple(dims[axis] for axis in range(rank.value))
            array = np.empty(shape, DTYPES[dtype.value])
            if array.nbytes:
                ctypes.memmove(array.ctypes.data, data, array.nbytes)
            result[name] = array
        return result
