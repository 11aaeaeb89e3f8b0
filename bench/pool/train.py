#!/usr/bin/env python3
"""Trains programs of programs.py, with PyTorch's own allocator or with the pool, and prints losses and step times.

    bench/pool/train.py [--programs NAME,...] [--steps N] [--pool LIBSLUICE_POOL_SO]

One line of JSON a program: name, losses, step_us; with --pool also the pool's allocations and frees so far.
"""

import argparse
import ctypes
import gc
import json
import sys
import time

import torch
from library import PoolStats
from programs import PROGRAMS, make_deterministic


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--pool", help="the path of libsluice_pool.so")
    options = parser.parse_args()
    if options.pool:
        allocator = torch.cuda.memory.CUDAPluggableAllocator(options.pool, "sluice_torch_allocate", "sluice_torch_free")
        torch.cuda.memory.change_current_allocator(allocator)
    for name in options.programs.split(","):
        make_deterministic()
        step = PROGRAMS[name]()
        losses, times = [], []
        for _ in range(options.steps):
            begun = time.perf_counter()
            losses.append(step().item())
            times.append((time.perf_counter() - begun) * 1e6)
        result = {"name": name, "losses": losses, "step_us": times}
        if options.pool:
            stats = PoolStats()
            if ctypes.CDLL(options.pool).sluice_torch_get_stats(0, ctypes.byref(stats)) == 0:
                result["pool"] = {"allocations": stats.allocations, "frees": stats.frees}
        print(json.dumps(result), flush=True)
        del step
        gc.collect()
        torch.cuda.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
