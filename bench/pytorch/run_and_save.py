"""Runs one of the programs unmodified, starts its measured part on demand, and saves its latencies.

    run_and_save.py DIRECTORY PROGRAM [ARGUMENT...]

Both programs import, warm up and then measure without a pause. To measure several of them over the very same time, this
wrapper stops at two points, each announced by a file in DIRECTORY and passed when another file appears:

    imported -> start   before the program's first line, with its modules loaded and no GPU touched
    ready    -> go      after the warm-up, at the last call before the measured loop: be.py's open() of its ready file,
                        hp.py's numpy.random.default_rng()

At the end hp.py's arrays `lat` and `svc` (milliseconds) are saved as DIRECTORY/latencies.npz.
"""

import os
import runpy
import sys
import time

directory, program = sys.argv[1], sys.argv[2]


def meet(announce, wait_for):
    with open(os.path.join(directory, announce), "w"):
        pass
    while not os.path.exists(os.path.join(directory, wait_for)):
        time.sleep(0.0005)


def main():
    import numpy
    import torch  # noqa: F401
    import torchvision  # noqa: F401

    meet("imported", "start")
    default_rng = numpy.random.default_rng

    def default_rng_after_go(*arguments):
        meet("ready", "go")
        return default_rng(*arguments)

    def open_after_go(path, mode="r"):
        meet("ready", "go")
        return open(path, mode)

    program_globals = {}
    if os.path.basename(program) == "hp.py":
        numpy.random.default_rng = default_rng_after_go
    else:
        program_globals["open"] = open_after_go
    sys.argv = sys.argv[2:]
    result = runpy.run_path(program, init_globals=program_globals, run_name="__main__")
    if "lat" in result:
        numpy.savez(os.path.join(directory, "latencies.npz"), lat=result["lat"], svc=result["svc"])


main()
