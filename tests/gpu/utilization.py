"""A GPU's utilization, sampled through NVML by a thread."""

import ctypes
import threading

PERIOD_S = 0.1


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Sampler:
    """For the device whose PyTorch properties are given. start() and stop() once each. Raises OSError without NVML."""

    def __init__(self, properties):
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", f"GPU-{properties.uuid}".encode(), ctypes.byref(self._handle))
        self._samples, self._memory, self._done = [], 0.0, threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _call(self, name, *arguments):
        code = getattr(self._nvml, name)(*arguments)
        if code != 0:
            raise OSError(f"NVML: {name} failed with {code}")

    def _sample(self):
        rates, memory = _Utilization(), _Memory()
        try:
            while not self._done.wait(PERIOD_S):
                self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(rates))
                self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
                self._samples.append(rates.gpu / 100)
                self._memory = max(self._memory, memory.used / memory.total)
        except OSError as error:
            self._error = error

    def start(self):
        self._thread.start()

    def stop(self):
        """What was seen, as keys of a result."""
        self._done.set()
        self._thread.join()
        if self._error:
            raise self._error
        if not self._samples:
            return {"utilization_samples": 0}
        return {"utilization_ratio": sum(self._samples) / len(self._samples),
                "utilization_min_ratio": min(self._samples), "utilization_max_ratio": max(self._samples),
                "utilization_samples": len(self._samples), "memory_ratio": self._memory}
