#!/usr/bin/env python3
"""Installs what find_package(sluice) needs, builds the program beside this file against it, and runs it."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("build", "cmake", "cuda", "emulator"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    cache = Path(options.build, "CMakeCache.txt").read_text()
    if "SLUICE_SANITIZE:STRING=\n" not in cache:
        print("skipped: the program would lack the sanitizer's run time")
        return 77

    with tempfile.TemporaryDirectory(prefix="sluice-package-") as scratch:
        prefix, tree, runtime = (os.path.join(scratch, name) for name in ("prefix", "build", "run"))
        os.mkdir(runtime)

        def run(*command, **more):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **more)

        run(options.cmake, "--install", options.build, "--prefix", prefix, "--component", "cpp")
        for path in Path(prefix).rglob("*.cmake"):
            if options.build in path.read_text():
                sys.exit(f"{path} names the build's folder")
        run(options.cmake, "-S", str(Path(__file__).parent / "program"), "-B", tree, f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DSLUICE_CUDA_INCLUDE={options.cuda}")
        run(options.cmake, "--build", tree)
        run(os.path.join(tree, "program"),
            env=dict(os.environ, SLUICE_DRIVER=options.emulator, SLUICE_RUNTIME_DIR=runtime))
    return 0


if __name__ == "__main__":
    sys.exit(main())
