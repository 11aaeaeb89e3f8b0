#!/usr/bin/env python3
"""Replays traces through PyTorch's own allocator and through the pool, in turn, in one process. pytorch.py starts it.

    bench/pool/torch_replay.py --library REPLAY_SO --pool LIBSLUICE_POOL_SO [--repeats N] [--only-capacity] TRACE...

REPLAY_SO is torch_replay.cc, compiled. Prints JSON: the keys of `bench_pool --json`, the rival being PyTorch.
"""

import argparse
import ctypes
import json
import statistics
import sys

import torch
from library import Pool

STEP_BYTES = 2 << 20  # to which capacities are found
OUT_OF_MEMORY = -1


class Event(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64), ("block", ctypes.c_uint32), ("stream", ctypes.c_uint32)]


class Trace:
    """A recorded trace, as the compiled code takes it. What is never freed is freed at the end."""

    def __init__(self, path, streams):
        with open(path, encoding="utf-8") as file:
            recorded = json.load(file)
        self.name = recorded["name"]
        events, live, now, self.peak_bytes = list(recorded["events"]), {}, 0, 0
        for block, size, stream in recorded["events"]:
            now += size or -live[block][0]
            if size:
                live[block] = size, stream
            else:
                del live[block]
            self.peak_bytes = max(self.peak_bytes, now)
        events += [[block, 0, stream] for block, (_, stream) in live.items()]
        self.count = len(events)
        self._blocks = 1 + max(event[0] for event in events)
        self._events = (Event * self.count)(*(Event(size, block, stream) for block, size, stream in events))
        used = 1 + max(event[2] for event in events)
        while len(streams) < used:
            streams.append(torch.cuda.Stream())
        self._streams = (ctypes.c_void_p * used)(*(stream.cuda_stream for stream in streams[:used]))

    def arguments(self):
        return self._events, ctypes.c_uint64(self.count), ctypes.c_uint64(self._blocks), self._streams


class Replay:
    """The compiled code. Each call returns nanoseconds, or None when the allocator ran out of memory."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        for name in ("replay_torch", "replay_pool"):
            getattr(self._library, name).restype = ctypes.c_int64

    @staticmethod
    def _result(ns):
        if ns >= 0:
            return ns
        if ns == OUT_OF_MEMORY:
            return None
        raise RuntimeError("PyTorch's allocator failed otherwise than by lack of memory")

    def torch(self, trace):
        torch.cuda.synchronize()
        return self._result(self._library.replay_torch(*trace.arguments()))

    def pool(self, trace, pool):
        torch.cuda.synchronize()
        calls = [ctypes.cast(getattr(pool.library, name), ctypes.c_void_p)
                 for name in ("sluice_pool_allocate", "sluice_pool_free")]
        return self._result(self._library.replay_pool(*trace.arguments(), pool.handle, *calls))


def measure_times(replay, trace, pool_path, repeats):
    """Both in turn; the first round warms them up and does not count."""
    pool = Pool(pool_path, trace.peak_bytes + trace.peak_bytes // 4 + (64 << 20))
    ours, rivals = [], []
    for _ in range(repeats + 1):
        for values, run in ((ours, lambda: replay.pool(trace, pool)), (rivals, lambda: replay.torch(trace))):
            ns = run()
            if ns is None:
                raise RuntimeError(f"{trace.name}: out of memory")
            values.append(ns / 1000 / trace.count)
    pool.close()
    torch.cuda.empty_cache()
    ours, rivals = ours[1:], rivals[1:]
    ratios = [mine / other for mine, other in zip(ours, rivals)]
    return {"name": trace.name, "rival": "PyTorch", "size": trace.count, "ours_us": statistics.median(ours),
            "rival_us": statistics.median(rivals), "ratio": statistics.median(ratios), "ratio_min": min(ratios),
            "ratio_max": max(ratios)}


def smallest_capacity(replay, trace):
    """The smallest limit on PyTorch's memory under which its allocator replays the trace."""
    total = torch.cuda.get_device_properties(0).total_memory

    def replays(steps):
        torch.cuda.empty_cache()
        # Half a step more, so that rounding a fraction of the whole never takes away the last step.
        torch.cuda.set_per_process_memory_fraction(min(1.0, (steps + 0.5) * STEP_BYTES / total))
        return replay.torch(trace) is not None

    fails = (trace.peak_bytes - 1) // STEP_BYTES
    does = fails + 1
    try:
        while not replays(does):
            fails, does = does, does + max(1, does // 4)
            if does * STEP_BYTES > min(total, 4 * trace.peak_bytes + (64 << 20)):
                raise RuntimeError(f"{trace.name} does not replay in four times its peak")
        while does - fails > 1:
            middle = (fails + does) // 2
            if replays(middle):
                does = middle
            else:
                fails = middle
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    return does * STEP_BYTES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--library", required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only-capacity", action="store_true")
    options = parser.parse_args()
    torch.cuda.init()
    torch.cuda.synchronize()  # the context is there and current
    streams = []
    traces = [Trace(path, streams) for path in options.traces]
    replay = Replay(options.library)
    rows = [] if options.only_capacity else [
        measure_times(replay, trace, options.pool, options.repeats) for trace in traces]
    capacities = []
    for trace in traces:
        capacity = smallest_capacity(replay, trace)
        capacities.append({"name": trace.name, "capacity_bytes": capacity, "peak_bytes": trace.peak_bytes,
                           "ratio": capacity / trace.peak_bytes})
    print(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows, "capacities": capacities}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
