#!/usr/bin/env python3
"""Records what real CUDA runtimes ask a driver for, by running each over the stub driver.

    record_lookups.py STUB [--wheels DIR] [--out DIR]

STUB      libstub_cuda.so of a build
--wheels  where the runtimes' wheels are, or are downloaded to with pip (default: a temporary directory)
--out     where lookups_<major>_<minor>.tsv go (default: beside this script)

A recording has one line per look-up: "dlsym <tab> symbol", or "cuGetProcAddress[_v2] <tab> name <tab> version <tab>
flags". A runtime looks everything up at its first use, for both kinds of default stream, before it stops at the
driver's undocumented export tables, which the stub does not have.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

# Recording, wheel, its version, library in the wheel.
RUNTIMES = (
    ("11_8", "nvidia-cuda-runtime-cu11", "11.8.89", "nvidia/cuda_runtime/lib/libcudart.so.11.0"),
    ("12_9", "nvidia-cuda-runtime-cu12", "12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12"),
    ("13_0", "nvidia-cuda-runtime", "13.0.88", "nvidia/cu13/lib/libcudart.so.13"),
)
# The first call makes the runtime look everything up; what it returns does not matter.
USE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).cudaFree(None)
"""


def get_runtime(wheels, package, version, member, to):
    def find():
        return next(wheels.glob(f"{package.replace('-', '_')}-{version}-*x86_64*.whl"), None)

    if not find():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, f"{package}=={version}"]
        subprocess.run(command, check=True)
    with zipfile.ZipFile(find()) as wheel:
        library = to / pathlib.Path(member).name
        library.write_bytes(wheel.read(member))
    return library


def record(stub, runtime, directory):
    driver = directory / "driver"
    driver.mkdir()
    shutil.copy(stub, driver / "libcuda.so.1")
    log = directory / "lookups"
    log.touch()
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(driver), "SLUICE_STUB_LOG": str(log),
                   "LD_DEBUG": "symbols", "LD_DEBUG_OUTPUT": str(directory / "ld")}
    subprocess.run([sys.executable, "-c", USE, runtime], env=environment, check=True)
    # The dynamic linker says which names were looked for in the driver; relocations of the driver itself are among
    # them, and are no names of its API.
    asked = set()
    for file in directory.glob("ld.*"):
        text = file.read_text(errors="replace")
        asked |= set(re.findall(r"symbol=(cu\w+);  lookup in file=" + re.escape(str(driver / "libcuda.so.1")), text))
    lines = [f"dlsym\t{name}" for name in sorted(asked)]
    lines += sorted(set(log.read_text().splitlines()), key=sort_key)
    return lines


def sort_key(line):
    function, name, version, flags = line.split("\t")
    return name, int(version), int(flags), function


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stub", type=pathlib.Path)
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    args = parser.parse_args()
    for name, package, version, member in RUNTIMES:
        with tempfile.TemporaryDirectory() as temporary:
            directory = pathlib.Path(temporary)
            wheels = args.wheels or directory
            wheels.mkdir(exist_ok=True)
            runtime = get_runtime(wheels, package, version, member, directory)
            lines = record(args.stub.resolve(), runtime, directory)
        header = f"# What {package} {version} looks up in libcuda.so.1; made by record_lookups.py.\n"
        (args.out / f"lookups_{name}.tsv").write_text(header + "\n".join(lines) + "\n")
        print(f"{package} {version}: {len(lines)} look-ups")


if __name__ == "__main__":
    main()
