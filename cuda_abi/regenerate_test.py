#!/usr/bin/env python3
"""Regenerates the tables into a temporary directory and compares them with the committed ones.

    regenerate_test.py INCLUDE_DIR

Exits with 77 (skipped), and says why, where INCLUDE_DIR is of another CUDA version or has no stub libcuda.so beside it.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COMMITTED = HERE / "include/sluice/cuda_abi"


def skip(why):
    print(f"skipped: cuda_abi.regenerate: {why}")
    sys.exit(77)


def main():
    include = pathlib.Path(sys.argv[1])
    want = re.search(r"\((\d+)\)", (COMMITTED / "version.inc").read_text())[1]
    have = re.search(r"#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text())[1]
    if want != have:
        skip(f"{include}/cuda.h is of CUDA {have}, the tables of {want}")
    if not (include / "cudaTypedefs.h").exists():
        skip(f"{include} has no cudaTypedefs.h")
    if not any((include.parent / lib / "stubs/libcuda.so").exists() for lib in ("lib64", "lib")):
        skip(f"no stubs/libcuda.so beside {include}")
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, HERE / "generate.py", "--include", include, "--out", out]
        subprocess.run(command, check=True)
        made = {p.name: p.read_text() for p in pathlib.Path(out).iterdir()}
    committed = {p.name: p.read_text() for p in COMMITTED.glob("*.inc")}
    different = sorted(n for n in made.keys() | committed.keys() if made.get(n) != committed.get(n))
    if different:
        sys.exit(f"cuda_abi: {', '.join(different)} differ from what generate.py writes; run it and commit the result")


if __name__ == "__main__":
    main()
